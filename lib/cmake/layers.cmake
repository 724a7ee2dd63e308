# Layers as compile-time walls. Each layer is an object library that sees its own folder and the
# folders it names, through a folder of links made for it; any other #include does not compile.
#
#   names   symbols.h and lookup.h: which symbols there are, no types
#   gen     driver_abi.h and real.h: the driver's types and functions

function(gpufence_link target link)
  get_filename_component(folder ${link} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${target} ${link} SYMBOLIC)
endfunction()

# gpufence_objects(TARGET SEES layer… SOURCES file…): an object library of the library proper. Tests
# get TARGET_checked beside it, which ends programs that break the rule of core/held_locks.h.
function(gpufence_objects target)
  cmake_parse_arguments(arg "" "" "SEES;SOURCES" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/layers/${target})
  foreach(seen IN LISTS arg_SEES)
    if(seen STREQUAL "names")
      foreach(header symbols.h lookup.h)
        gpufence_link(${GEN_DIR}/${header} ${view}/${header})
      endforeach()
    elseif(seen STREQUAL "gen")
      foreach(header driver_abi.h real.h)
        gpufence_link(${GEN_DIR}/${header} ${view}/${header})
      endforeach()
    else()
      gpufence_link(${CMAKE_SOURCE_DIR}/src/${seen} ${view}/${seen})
    endif()
  endforeach()
  gpufence_object_library(${target} ${view} ${arg_SOURCES})
  if(GPUFENCE_TESTS)
    gpufence_object_library(${target}_checked ${view} ${arg_SOURCES})
    target_compile_definitions(${target}_checked PRIVATE GPUFENCE_CHECK_LOCKS)
    set_target_properties(${target}_checked PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  endif()
endfunction()

function(gpufence_object_library target view)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${view})
  target_link_libraries(${target} PRIVATE gpufence_flags)
  add_dependencies(${target} gpufence_render)
endfunction()

# gpufence_layer(NAME SEES layer… SOURCES file…): src/NAME as the object library gpufence_NAME.
function(gpufence_layer name)
  cmake_parse_arguments(arg "" "" "SEES;SOURCES" ${ARGN})
  list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/src/${name}/)
  gpufence_objects(gpufence_${name} SEES ${arg_SEES} ${name} SOURCES ${arg_SOURCES})
endfunction()
