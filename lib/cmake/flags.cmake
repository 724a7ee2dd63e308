# Compiler and linker settings, each unusual one with its reason.
include(CheckLinkerFlag)

add_library(gpufence_flags INTERFACE)
target_compile_options(gpufence_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:
    # The host program may be C, or C++ with another runtime: nothing of ours may unwind through it.
    -fno-exceptions -fno-rtti
    # Guards of function statics need the C++ runtime; every global of ours is constinit.
    -fno-threadsafe-statics
    # Only what driver_abi.h declares with default visibility leaves the library.
    -fvisibility=hidden
    # Preloaded libraries are there from the start, so thread-locals can live in the static block:
    # one instruction instead of a call that may allocate.
    -ftls-model=initial-exec
    # Hooks run before and after driver calls that leave caches and predictors cold. There a jump
    # through a table is a guess that fails, and fields that were just written one by one and are
    # read back as one wait until the stores are done.
    -fno-jump-tables -fno-tree-slp-vectorize
    # A misspelt hook is a function nobody declared.
    -Wmissing-declarations -Werror=missing-declarations
    -Wall -Wextra -Wconversion -Wno-unused-parameter>)

# A driver function that is missing must surface at the link, not in a user's process.
set(GPUFENCE_LINK_OPTIONS -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,--build-id)
# Not known to every linker (lld inside zig), and only a second net: we link no static archives.
check_linker_flag(C "-Wl,--exclude-libs,ALL" GPUFENCE_HAS_EXCLUDE_LIBS)
if(GPUFENCE_HAS_EXCLUDE_LIBS)
  list(APPEND GPUFENCE_LINK_OPTIONS -Wl,--exclude-libs,ALL)
endif()

# gpufence_shared_library(NAME OBJECTS … EXPORTS map FOLDER dir [OUTPUT file] [SONAME name] [SYMBOLIC])
# Linked by the C driver, so that an accidental use of the C++ runtime is a link error; CMake would
# hand that runtime to the C driver unasked, because the objects are C++.
set(CMAKE_CXX_IMPLICIT_LINK_LIBRARIES "")
function(gpufence_shared_library name)
  cmake_parse_arguments(arg "SYMBOLIC" "EXPORTS;FOLDER;OUTPUT;SONAME" "OBJECTS" ${ARGN})
  set(objects ${arg_OBJECTS})
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  add_library(${name} SHARED ${objects})
  set_target_properties(${name} PROPERTIES
    LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${arg_FOLDER}
    LINK_DEPENDS ${arg_EXPORTS})
  if(arg_OUTPUT)
    set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${arg_OUTPUT}
                                             NO_SONAME ON)
    target_link_options(${name} PRIVATE -Wl,-soname,${arg_SONAME})
  endif()
  # Not -Bsymbolic-functions, which zig's linker does not know; the only data that we export are the
  # simulator's copies of the debugger's variables, and the driver binds those inside itself, too.
  target_link_options(${name} PRIVATE ${GPUFENCE_LINK_OPTIONS}
    -Wl,--version-script=${arg_EXPORTS}
    $<$<BOOL:${arg_SYMBOLIC}>:-Wl,-Bsymbolic>)
  target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(${name} gpufence_render)
endfunction()
