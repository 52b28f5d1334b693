# Every module has a CMakeLists.txt in its folder and uses only earlier modules. Test folders have separate ones.
set(STRATA_MODULE_ORDER base observe tensor quantize comm parallel data/tokenizer data/text data/pipeline data/input data/tokens data/samples
    data/filter data/dedup data/build graph ops hardware plan kernels/cpu layers models optim kernels/reference kernels/gpu device device/cpu
    device/reference device/described device/gpu device/cuda device/open program interop/torch checkpoint interop inference evaluation config diagnosis train launch library benchmarks self_test cli)
foreach(module ${STRATA_MODULE_ORDER})
  add_subdirectory(src/${module})
endforeach()
if(STRATA_TESTS)
  add_subdirectory(tests/runner)
  foreach(module base observe quantize comm parallel data/tokenizer data/text data/pipeline data/input data/tokens data/filter data/dedup data/build
          ops hardware plan kernels/cpu models optim program checkpoint evaluation config diagnosis train launch library self_test cli contracts docs gpu)
    add_subdirectory(tests/${module})
  endforeach()
endif()
if(STRATA_FUZZ)
  add_subdirectory(tests/fuzz)
endif()
if(STRATA_BENCH)
  add_subdirectory(bench)
endif()
include(cmake/StrataInstall.cmake)
