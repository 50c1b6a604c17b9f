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
# A `python3` that is a script of pyenv takes a tenth of a second to find the interpreter, in hundreds of tests.
find_program(PYTHON_WORD python3)
execute_process(COMMAND python3 -c "import sys; print(sys.executable)" OUTPUT_VARIABLE python ERROR_QUIET
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(PYTHON_WORD MATCHES "/shims/" AND python)
  get_filename_component(python "${python}" DIRECTORY)
  list(PREPEND kept "${python}")
endif()
list(JOIN kept ":" kept)
set(ENV{PATH} "${kept}")
# Temporary files in memory: ext4 passes over every number of a recently deleted file when it makes one, which takes up
# to half of a short compile. /dev/shm must have room and run programs. What tests write into build/ goes to the disk.
if(NOT DEFINED ENV{TMPDIR})
  execute_process(RESULT_VARIABLE no_memory OUTPUT_QUIET ERROR_QUIET COMMAND sh -c [[
    [ "$(df -P -k /dev/shm | awk 'NR == 2 { print $4 }')" -ge 4194304 ] &&
      file=$(mktemp /dev/shm/shardc-XXXXXX) && printf '#!/bin/sh\n' > "$file" && chmod +x "$file" && "$file"
    code=$?
    rm -f "$file"
    exit $code]])
  if(no_memory EQUAL 0)
    set(ENV{TMPDIR} /dev/shm)
  endif()
endif()
