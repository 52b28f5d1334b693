# Optional: Apache Arrow for Parquet, Arrow IPC and object storage. STRATA_ARROW_ROOT is the `pyarrow` folder of an
# unpacked wheel (tools/arrow.sh fetches one); without it, installed CMake packages are used. Defines both targets
# Arrow::arrow_shared and Parquet::parquet_shared, or neither.
set(STRATA_ARROW_ROOT "${STRATA_ARROW_ROOT}" CACHE PATH "The pyarrow folder of an unpacked wheel")
if(TARGET Parquet::parquet_shared)
  return()
endif()
if(STRATA_ARROW_ROOT)
  file(GLOB strata_libarrow ${STRATA_ARROW_ROOT}/libarrow.so.*)
  file(GLOB strata_libparquet ${STRATA_ARROW_ROOT}/libparquet.so.*)
  file(GLOB strata_libarrow_s3 ${STRATA_ARROW_ROOT}/libarrow_s3.so.*)
  if(NOT strata_libarrow OR NOT strata_libparquet OR NOT EXISTS ${STRATA_ARROW_ROOT}/include/parquet/arrow/reader.h)
    message(FATAL_ERROR "STRATA_ARROW_ROOT=${STRATA_ARROW_ROOT} lacks libarrow.so.*, libparquet.so.* or include/. "
      "Run tools/arrow.sh, or set it to the pyarrow folder of an unpacked wheel.")
  endif()
  list(GET strata_libarrow 0 strata_libarrow)
  list(GET strata_libparquet 0 strata_libparquet)
  add_library(Arrow::arrow_shared SHARED IMPORTED)
  set_target_properties(Arrow::arrow_shared PROPERTIES IMPORTED_LOCATION ${strata_libarrow}
    INTERFACE_INCLUDE_DIRECTORIES ${STRATA_ARROW_ROOT}/include)
  if(strata_libarrow_s3)
    # Linked although no function of it is called: loading it registers s3://.
    list(GET strata_libarrow_s3 0 strata_libarrow_s3)
    set_property(TARGET Arrow::arrow_shared PROPERTY INTERFACE_LINK_LIBRARIES
      "-Wl,--push-state,--no-as-needed" ${strata_libarrow_s3} "-Wl,--pop-state")
  endif()
  add_library(Parquet::parquet_shared SHARED IMPORTED)
  set_target_properties(Parquet::parquet_shared PROPERTIES IMPORTED_LOCATION ${strata_libparquet}
    INTERFACE_LINK_LIBRARIES Arrow::arrow_shared)
else()
  find_package(Arrow CONFIG QUIET)
  find_package(Parquet CONFIG QUIET)
endif()
