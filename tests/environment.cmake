# Read by ctest before the tests. Tests in C allocate and free whole compilations again and again: memory that is given
# back and asked for anew costs page faults, a third of the time of some.
set(ENV{SHARDC_EQUAL} off) # tests that are about it set it themselves
set(ENV{MALLOC_TRIM_THRESHOLD_} 268435456)
set(ENV{MALLOC_MMAP_THRESHOLD_} 33554432)
