# The rendered sources: lib/api + templates -> build/gen. Defines GEN_DIR and gpufence_render.
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
  # The generator's own table says what it writes.
  execute_process(COMMAND ${hookgen} render --list OUTPUT_VARIABLE outputs
                  WORKING_DIRECTORY ${tools}
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" outputs "${outputs}")
  list(TRANSFORM outputs PREPEND ${GEN_DIR}/)
  # One command renders everything; it touches only what changed, hence the stamp.
  add_custom_command(
    OUTPUT ${GEN_DIR}/render.stamp
    BYPRODUCTS ${outputs}
    COMMAND ${hookgen} render --out ${GEN_DIR} --depfile ${GEN_DIR}/render.d
    COMMAND ${CMAKE_COMMAND} -E touch ${GEN_DIR}/render.stamp
    DEPFILE ${GEN_DIR}/render.d
    WORKING_DIRECTORY ${tools}
    COMMENT "Rendering the library from lib/api"
    VERBATIM)
  add_custom_target(gpufence_render DEPENDS ${GEN_DIR}/render.stamp)
  set_source_files_properties(${outputs} PROPERTIES GENERATED TRUE)
endif()
