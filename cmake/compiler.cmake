# Flags every target of ours is built with.

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -Wnon-virtual-dtor -Wold-style-cast)
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)

# Warnings are errors where the product is built. Instrumented code makes GCC see uninitialised
# values that are not there, and Clang (fuzzing, clang-tidy) has opinions of its own.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT SHARDLINE_SANITIZE)
    add_compile_options(-Werror)
endif()

# GCC 12 at -O3 sees overflows inside std::string (replace, insert, operator+) that are not there
# (its bugs 105329 and 105651); later ones do not.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    add_compile_options(-Wno-stringop-overflow -Wno-restrict -Wno-array-bounds)
endif()

if(SHARDLINE_SANITIZE)
    add_compile_options(-fsanitize=${SHARDLINE_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${SHARDLINE_SANITIZE})
    if(SHARDLINE_SANITIZE MATCHES "undefined")
        # The vptr check needs type information that OpenVINO and gRPC do not export.
        add_compile_options(-fno-sanitize=vptr)
        add_link_options(-fno-sanitize=vptr)
    endif()
endif()

if(SHARDLINE_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)  # coverage; the targets add the driver
endif()

find_program(SHARDLINE_CCACHE ccache)
if(SHARDLINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${SHARDLINE_CCACHE})
endif()
