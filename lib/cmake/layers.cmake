# Layers as compile-time walls. Each layer is an object library that sees its own folder and the
# folders it names, through a folder made for it; any other #include does not compile.
#
#   names   symbols.h and lookup.h: which symbols there are, no types
#   gen     driver_abi.h and real.h: the driver's types and functions
#   lists   option_names.h and option_table.h: what limits are read from
#   layouts shared_layouts.h: the bytes of the files that processes share

# A folder of lib/src is shown as a link to it. A rendered header must not be: the compiler would
# report the link's name, which ninja does not know as rendered, and what was compiled from an
# earlier model would be linked with the new one. Here the compiler reports both names.
function(gpufence_show_rendered view)
  foreach(header ${ARGN})
    file(CONFIGURE OUTPUT ${view}/${header} CONTENT "#include \"${GEN_DIR}/${header}\"\n" @ONLY)
  endforeach()
endfunction()

# gpufence_objects(TARGET SEES layer… SOURCES file…): an object library of the library proper. Tests
# get TARGET_checked beside it, which ends programs that break the rule of base/held_locks.h.
function(gpufence_objects target)
  cmake_parse_arguments(arg "" "" "SEES;SOURCES" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/seen/${target})
  file(MAKE_DIRECTORY ${view})
  foreach(seen IN LISTS arg_SEES)
    if(seen STREQUAL "names")
      gpufence_show_rendered(${view} symbols.h lookup.h)
    elseif(seen STREQUAL "gen")
      gpufence_show_rendered(${view} driver_abi.h real.h)
    elseif(seen STREQUAL "lists")
      gpufence_show_rendered(${view} option_names.h option_table.h)
    elseif(seen STREQUAL "layouts")
      gpufence_show_rendered(${view} shared_layouts.h)
    else()
      file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${seen} ${view}/${seen} SYMBOLIC)
    endif()
  endforeach()
  set(libraries ${target})
  gpufence_object_library(${target} ${view} ${arg_SOURCES})
  if(GPUFENCE_TESTS)
    list(APPEND libraries ${target}_checked)
    gpufence_object_library(${target}_checked ${view} ${arg_SOURCES})
    target_compile_definitions(${target}_checked PRIVATE GPUFENCE_CHECK_LOCKS)
    set_target_properties(${target}_checked PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  endif()
  if("lists" IN_LIST arg_SEES OR "layouts" IN_LIST arg_SEES)
    foreach(library IN LISTS libraries)
      add_dependencies(${library} gpufence_render)
    endforeach()
  endif()
  if("names" IN_LIST arg_SEES OR "gen" IN_LIST arg_SEES)
    foreach(library IN LISTS libraries)
      gpufence_of_one_model(${library})
    endforeach()
  endif()
endfunction()

function(gpufence_object_library target view)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE ${view})
  target_link_libraries(${target} PRIVATE gpufence_flags)
endfunction()

# gpufence_layer(NAME SEES layer…): src/NAME, every file of it, as the object library gpufence_NAME.
function(gpufence_layer name)
  cmake_parse_arguments(arg "" "" "SEES" ${ARGN})
  set(folder ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.S)
  gpufence_objects(gpufence_${name} SEES ${arg_SEES} ${name} SOURCES ${sources})
endfunction()
