# Read by ctest before the tests. Tests in C allocate and free whole compilations again and again: memory that is given
# back and asked for anew costs page faults, a third of the time of some.
set(ENV{SHARDC_EQUAL} off) # tests that are about it set it themselves
set(ENV{MALLOC_TRIM_THRESHOLD_} 268435456)
set(ENV{MALLOC_MMAP_THRESHOLD_} 33554432)
# ptxas, which assembles every kernel for GPUs, takes most of the time of such a compile: only tests that are about its
# answers find it (with_ptxas of CMakeLists.txt). Folders of the system stay.
string(REPLACE ":" ";" folders "$ENV{PATH}")
set(kept "")
foreach(folder IN LISTS folders)
  if(NOT EXISTS "${folder}/ptxas" OR folder MATCHES "^(/usr)?/s?bin$")
    list(APPEND kept "${folder}")
  endif()
endforeach()
list(JOIN kept ":" kept)
set(ENV{PATH} "${kept}")
