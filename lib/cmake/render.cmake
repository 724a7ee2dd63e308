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
  # pip's isolated builds bring jinja2 in through PYTHONPATH, so that is added to and not replaced.
  set(python_path ${CMAKE_CURRENT_SOURCE_DIR}/../tools)
  if(NOT "$ENV{PYTHONPATH}" STREQUAL "")
    string(APPEND python_path ":$ENV{PYTHONPATH}")
  endif()
  set(hookgen ${CMAKE_COMMAND} -E env "PYTHONPATH=${python_path}"
              ${Python3_EXECUTABLE} -B -m gen)
  # The generator's own table says what it writes.
  execute_process(COMMAND ${hookgen} render --list OUTPUT_VARIABLE outputs
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
    COMMENT "Rendering the library from lib/api"
    VERBATIM)
  add_custom_target(gpufence_render DEPENDS ${GEN_DIR}/render.stamp)
  set_source_files_properties(${outputs} PROPERTIES GENERATED TRUE)
endif()
