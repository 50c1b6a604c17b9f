# LLVM as code in the program (llvm_inside, for shardc) and as a shared library (llvm_shared, for tests that run once).
# A program that holds LLVM, at a fixed address, starts in 5 ms; the shared library is relocated at every start, which
# writes 2,500 pages and takes 20 ms. Without the archives, or with -DSHARDC_LLVM=shared, both are the shared library.
set(SHARDC_LLVM inside CACHE STRING "inside: shardc holds LLVM; shared: it loads libLLVM")
add_library(llvm_shared INTERFACE)
target_link_libraries(llvm_shared INTERFACE ${LLVM_LIBDIR}/libLLVM-19.so)
add_library(llvm_inside INTERFACE)
execute_process(COMMAND ${LLVM_CONFIG} --link-static --libfiles passes x86codegen x86asmparser nvptxcodegen
  OUTPUT_VARIABLE LLVM_ARCHIVES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE LLVM_HAS_ARCHIVES)
find_library(LLVM_ZSTD NAMES zstd libzstd.so.1)
find_library(LLVM_ZLIB NAMES z libz.so.1)
if(SHARDC_LLVM STREQUAL inside AND LLVM_HAS_ARCHIVES EQUAL 0 AND LLVM_ZSTD AND LLVM_ZLIB AND NOT SHARDC_SANITIZE)
  separate_arguments(LLVM_ARCHIVES)
  target_link_libraries(llvm_inside INTERFACE ${LLVM_ARCHIVES} ${LLVM_ZSTD} ${LLVM_ZLIB} -l:libstdc++.a m)
  target_link_options(llvm_inside INTERFACE -no-pie -static-libgcc)
else()
  target_link_libraries(llvm_inside INTERFACE llvm_shared)
endif()
