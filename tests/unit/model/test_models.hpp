#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace shardline {

// Where an environment variable says that a model is; empty when unset or not there.
inline std::filesystem::path path_from_environment(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && std::filesystem::exists(value) ? value : std::filesystem::path();
}

// A directory of the test's own, removed with it.
class ScratchDirectory final {
public:
    ScratchDirectory() {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        std::string name = std::string("shardline-") + test->test_suite_name() + "-" + test->name();
        for (char& c : name) {
            c = c == '/' ? '_' : c;
        }
        path_ = std::filesystem::temp_directory_path() / name;
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;
    ~ScratchDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace shardline
