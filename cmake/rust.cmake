# The Rust part (rust/) as one imported static library, target shardline_text_rust. Cargo does the
# building; Cargo.lock pins every crate, and nothing is fetched that is already in cargo's cache.

include_guard(GLOBAL)

find_program(SHARDLINE_CARGO NAMES cargo HINTS "$ENV{HOME}/.cargo/bin" /usr/lib/rust-web/bin)
if(NOT SHARDLINE_CARGO)
    message(FATAL_ERROR "cargo not found: install Rust (on Debian: cargo-web and rustc-web)")
endif()

set(shardline_rust_root "${PROJECT_SOURCE_DIR}/rust")
# One for all presets: it does not depend on how the C++ side is built.
set(shardline_rust_target "${PROJECT_SOURCE_DIR}/build/rust")
set(shardline_rust_library "${shardline_rust_target}/release/libshardline_text_rust.a")
set(shardline_rust_sources
    Cargo.toml Cargo.lock src/lib.rs src/chat_template.rs src/environment.rs src/name_check.rs
    src/python_methods.rs src/python_text.rs)
list(TRANSFORM shardline_rust_sources PREPEND "${shardline_rust_root}/")

add_custom_command(
    OUTPUT "${shardline_rust_library}"
    COMMAND "${SHARDLINE_CARGO}" build --release --locked --quiet
            --manifest-path "${shardline_rust_root}/Cargo.toml"
            --target-dir "${shardline_rust_target}"
    # Cargo leaves an unchanged library as old as it was, which ninja would take for outdated.
    COMMAND "${CMAKE_COMMAND}" -E touch "${shardline_rust_library}"
    DEPENDS ${shardline_rust_sources}
    COMMENT "Building the Rust library"
    VERBATIM)
add_custom_target(shardline_text_rust_build DEPENDS "${shardline_rust_library}")

add_library(shardline_text_rust STATIC IMPORTED GLOBAL)
set_target_properties(shardline_text_rust PROPERTIES
    IMPORTED_LOCATION "${shardline_rust_library}"
    INTERFACE_INCLUDE_DIRECTORIES "${shardline_rust_root}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
add_dependencies(shardline_text_rust shardline_text_rust_build)
