# The stand-in GPU: a machine that runs PTX. Vectors of 32 lanes want AVX2, which every target of the
# compiler has; directed rounding and contraction are done by hand.
add_library(ptx STATIC ptx_async.c ptx_atomic.c ptx_body.c ptx_bulk.c ptx_call.c ptx_check.c ptx_convert.c ptx_decode.c
  ptx_device.c ptx_float.c ptx_flow.c ptx_group.c ptx_half.c ptx_int.c ptx_lex.c ptx_matrix.c ptx_memory.c ptx_move.c
  ptx_parse.c ptx_post.c ptx_round.c ptx_run.c ptx_signal.c ptx_slots.c ptx_sync.c ptx_wgmma.c)
target_compile_options(ptx PRIVATE -O3 -march=x86-64-v3 -ffp-contract=off -fno-math-errno -fno-trapping-math
  $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # some loops it leaves as they are, and says so
set_source_files_properties(ptx_round.c ptx_convert.c PROPERTIES COMPILE_OPTIONS -frounding-math)
set_target_properties(ptx PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(ptx PUBLIC m)
foreach(name ops programs)
  add_executable(gpu_test_${name} test_${name}.c small.c)
  target_link_libraries(gpu_test_${name} PRIVATE ptx cmocka)
  add_test(NAME gpu/${name} COMMAND gpu_test_${name})
  add_test(NAME gpu/${name}_ptxas COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/assemble.sh $<TARGET_FILE:gpu_test_${name}>)
  set_tests_properties(gpu/${name}_ptxas PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
foreach(name checks wgmma bulk leave)
  add_executable(gpu_test_${name} test_${name}.c small.c)
  target_link_libraries(gpu_test_${name} PRIVATE ptx cmocka)
  add_test(NAME gpu/${name} COMMAND gpu_test_${name})
endforeach()
add_executable(gpu_bench_ptx EXCLUDE_FROM_ALL bench_ptx.c small.c)
target_link_libraries(gpu_bench_ptx PRIVATE ptx)
add_test(NAME gpu/fuzz COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fuzz.sh ${CMAKE_SOURCE_DIR} $<TARGET_FILE:gpu_test_programs>
  5)
set_tests_properties(gpu/fuzz PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
# Kernels of dumps through ptxas; kernels.py .. all calls it.
add_executable(gpu_spills spills.c)
target_link_libraries(gpu_spills PRIVATE shardc_codegen shardc_passes shardc_ir llvm_shared m)
# Wrong kernels must be noticed.
add_executable(gpu_mutate mutate.c mutate_text.c ${CMAKE_SOURCE_DIR}/tests/common/kernel_params.c)
target_link_libraries(gpu_mutate PRIVATE ptx shardc_codegen shardc_passes shardc_ir llvm_shared m)
add_test(NAME gpu/mutate COMMAND gpu_mutate)
set_tests_properties(gpu/mutate PROPERTIES TIMEOUT 3600)
