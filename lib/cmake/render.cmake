# The rendered sources: lib/api + templates -> build/gen. Defines GEN_DIR, gpufence_render and
# gpufence_of_one_model.
set(standalone_gen ${CMAKE_CURRENT_SOURCE_DIR}/../gen)
if(NOT GPUFENCE_GEN_DIR AND EXISTS ${standalone_gen}/driver_abi.h)
  set(GPUFENCE_GEN_DIR ${standalone_gen})
endif()

if(GPUFENCE_GEN_DIR)
  set(GEN_DIR ${GPUFENCE_GEN_DIR})
  add_custom_target(gpufence_render)
else()
  set(GEN_DIR ${CMAKE_BINARY_DIR}/gen)
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
  # Run where `gen` lies, not through PYTHONPATH: that is how pip's isolated builds bring jinja2 in.
  set(tools ${CMAKE_CURRENT_SOURCE_DIR}/../tools)
  set(hookgen ${Python3_EXECUTABLE} -B -m gen)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import jinja2" WORKING_DIRECTORY ${tools}
                  RESULT_VARIABLE no_jinja2 OUTPUT_QUIET ERROR_QUIET)
  if(no_jinja2)
    message(FATAL_ERROR
      "The library's sources are rendered with jinja2, and ${Python3_EXECUTABLE} has no jinja2.\n"
      "Do one of these:\n"
      "  ci/build                                    installs it into .venv, and builds\n"
      "  ${Python3_EXECUTABLE} -m pip install jinja2\n"
      "  cmake -DPython3_EXECUTABLE=PATH ...         names a Python that has it\n"
      "  hookgen render --standalone DIR             elsewhere: DIR builds without Python")
  endif()
  # The generator's own table says what it writes. It is asked anew when the generator changes:
  # what ninja does not know as rendered, it does not compile again.
  file(GLOB generator CONFIGURE_DEPENDS ${tools}/gen/*.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${generator})
  execute_process(COMMAND ${hookgen} render --list OUTPUT_VARIABLE outputs
                  WORKING_DIRECTORY ${tools}
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" outputs "${outputs}")
  list(TRANSFORM outputs PREPEND ${GEN_DIR}/)
  # A list of a new driver is in no depfile yet.
  file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/api/symbols/*.txt)
  # One command renders everything; it touches only what changed, hence the stamp.
  add_custom_command(
    OUTPUT ${GEN_DIR}/render.stamp
    BYPRODUCTS ${outputs}
    COMMAND ${hookgen} render --out ${GEN_DIR} --depfile ${GEN_DIR}/render.d
    COMMAND ${CMAKE_COMMAND} -E touch ${GEN_DIR}/render.stamp
    DEPENDS ${lists}
    DEPFILE ${GEN_DIR}/render.d
    WORKING_DIRECTORY ${tools}
    COMMENT "Rendering the library from lib/api"
    VERBATIM)
  add_custom_target(gpufence_render DEPENDS ${GEN_DIR}/render.stamp)
  set_source_files_properties(${outputs} PROPERTIES GENERATED TRUE)
endif()

# gpufence_of_one_model(TARGET): its objects are compiled after the rendering, against rendered
# headers, and link only with others that were compiled against the same ones.
function(gpufence_of_one_model target)
  add_dependencies(${target} gpufence_render)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${GEN_DIR}/model.h\">")
endfunction()
