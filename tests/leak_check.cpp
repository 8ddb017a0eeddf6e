// Leaks are looked for while every library is still loaded: what a plugin keeps after it was
// unloaded has no name that a suppression could match. Part of every test under the address
// sanitizer.

#include <gtest/gtest.h>
#include <sanitizer/lsan_interface.h>

namespace {

class LeakCheck final : public testing::Environment {
public:
    void TearDown() override { __lsan_do_leak_check(); }
};

[[maybe_unused]] const testing::Environment* const kLeakCheck =
    testing::AddGlobalTestEnvironment(new LeakCheck);

}  // namespace
