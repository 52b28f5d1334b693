# cmake -DFROM=FILE -DTO=FILE.zst -P Compress.cmake: compresses a file.
file(ARCHIVE_CREATE OUTPUT ${TO} PATHS ${FROM} FORMAT raw COMPRESSION Zstd COMPRESSION_LEVEL 9)
