# OpenVINO comes from the pinned wheels in the project's Python environment, all else from Debian.
# scripts/bootstrap makes both; build/openvino points into the environment.

if(NOT OpenVINO_DIR)
    set(OpenVINO_DIR "${PROJECT_SOURCE_DIR}/build/openvino/cmake" CACHE PATH "OpenVINO's package")
endif()
if(NOT EXISTS "${OpenVINO_DIR}/OpenVINOConfig.cmake")
    message(FATAL_ERROR "No OpenVINO at ${OpenVINO_DIR}: run scripts/bootstrap first")
endif()

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
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(GTest REQUIRED)
