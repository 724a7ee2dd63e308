# Optimisation across files, for the targets that follow. A hook goes through four layers, each in
# files of its own, and calls between them cost more than what they do: over the simulated driver a
# pair of 1 KiB is a fifth cheaper with it. Sanitizers want the calls as they are written.
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
if(GPUFENCE_LTO AND NOT GPUFENCE_SANITIZE)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT CMAKE_INTERPROCEDURAL_OPTIMIZATION LANGUAGES C CXX)
endif()
