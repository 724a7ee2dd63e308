# ci/zig.cmake: the compiler of the pinned ziglang wheel, for machines that have none.
# ci/compiler names this file and puts the tools into .venv/zig; nothing else should use it.
set(zig_tools ${CMAKE_CURRENT_LIST_DIR}/../.venv/zig)
get_filename_component(zig_tools ${zig_tools} ABSOLUTE)

set(CMAKE_C_COMPILER ${zig_tools}/cc)
set(CMAKE_CXX_COMPILER ${zig_tools}/c++)
set(CMAKE_AR ${zig_tools}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${zig_tools}/ranlib CACHE FILEPATH "")

# glibc 2.28 is what the wheels of the pinned tools ask for themselves. ci/release names an older one,
# and machines other than this.
cmake_host_system_information(RESULT zig_machine QUERY OS_PLATFORM)
set(GPUFENCE_ZIG_TARGET ${zig_machine}-linux-gnu.2.28 CACHE STRING "What zig compiles for")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GPUFENCE_ZIG_TARGET)
foreach(language C CXX ASM)
  set(CMAKE_${language}_COMPILER_TARGET ${GPUFENCE_ZIG_TARGET})
endforeach()
if(NOT GPUFENCE_ZIG_TARGET MATCHES "^${zig_machine}-")
  set(CMAKE_SYSTEM_NAME Linux)
  string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR ${GPUFENCE_ZIG_TARGET})
endif()

# The first link of a C++ program compiles the C++ runtime, about 40 s. The library needs none, so
# CMake's own probes must not link; and what they would have found out is said here.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(GPUFENCE_HAS_EXCLUDE_LIBS OFF CACHE INTERNAL "zig's linker does not know --exclude-libs")
set(GPUFENCE_LTO OFF CACHE BOOL "what would find out whether zig can must link")
