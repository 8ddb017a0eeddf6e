# OpenVINO comes from the pinned wheel in the project's Python environment, all else from Debian.
# OpenVINO_DIR is given by the presets (build/venv); see scripts/bootstrap.

find_package(Threads REQUIRED)
find_package(OpenVINO REQUIRED COMPONENTS Runtime)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(cpp_httplib REQUIRED IMPORTED_TARGET cpp-httplib)  # PkgConfig::cpp_httplib
find_package(GTest REQUIRED)
