#include "transport/wire_codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "stage.pb.h"
#include "transport/wire_spec.hpp"
#include "unit/transport/chain_harness.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

Step full_step() {
    Step step = make_step(Epoch{3}, 11, 4);
    step.plan.copy_blocks = {{BlockId{1}, BlockId{2}}, {BlockId{3}, BlockId{4}}};
    step.plan.spans[1].past_len = 40;
    step.plan.spans[1].block_table = {BlockId{5}, BlockId{6}};
    step.plan.kept_rows = {0, 3};
    step.activations.push_back({.name = "boundary.0.1",
                                .type = ElementType::kI64,
                                .shape = {4},
                                .bytes = std::string(32, 'x')});
    step.timings = {{.stage = 0, .queue_us = 1, .execute_us = 2, .bytes_in = 3}};
    return step;
}

// Over the bytes of the wire, so that what protobuf does to them is included.
template <typename Message>
Message travelled(const Message& message) {
    Message arrived;
    EXPECT_TRUE(arrived.ParseFromString(message.SerializeAsString()));
    return arrived;
}

wire::Step encoded(Step step) {
    wire::Step message;
    encode_step(std::move(step), message);
    return travelled(message);
}

std::string refusal(wire::Step message) {
    try {
        decode_step(std::move(message), kTestLimits);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
        return error.what();
    }
    return "accepted";
}

TEST(WireCodec, StepArrivesAsItWas) {
    const Step sent = full_step();
    const Step arrived = decode_step(encoded(sent), kTestLimits);
    EXPECT_EQ(arrived.plan, sent.plan);
    EXPECT_EQ(arrived.activations, sent.activations);
    EXPECT_EQ(arrived.timings, sent.timings);
}

TEST(WireCodec, ResultArrivesAsItWas) {
    StepResult sent;
    sent.epoch = Epoch{3};
    sent.step = StepId{std::numeric_limits<std::uint64_t>::max()};
    sent.outputs = {{.name = "logits", .shape = {0, 7}, .bytes = {}}};
    sent.timings = {{.stage = 1, .queue_us = 4, .execute_us = 5, .bytes_in = 6}};
    wire::StepResult message;
    encode_result(StepResult(sent), message);
    const StepResult arrived = decode_result(travelled(message));
    EXPECT_EQ(arrived.epoch, sent.epoch);
    EXPECT_EQ(arrived.step, sent.step);
    EXPECT_EQ(arrived.status, StepStatus::kDone);
    EXPECT_EQ(arrived.outputs, sent.outputs);
    EXPECT_EQ(arrived.timings, sent.timings);
}

TEST(WireCodec, TensorBytesAreMovedNotCopied) {
    Step step = make_step(Epoch{1}, 1, 64);
    const char* data = step.activations.front().bytes.data();
    wire::Step message;
    encode_step(std::move(step), message);
    EXPECT_EQ(message.activations(0).data().data(), data);
    const Step back = decode_step(std::move(message), kTestLimits);
    EXPECT_EQ(back.activations.front().bytes.data(), data);
}

struct BadFrame {
    const char* name;
    std::function<void(wire::Step&)> damage;
    const char* message;
};

class BadFrameTest : public ::testing::TestWithParam<BadFrame> {};

TEST_P(BadFrameTest, IsRefusedWithAReason) {
    wire::Step message = encoded(full_step());
    ASSERT_EQ(refusal(message), "accepted");
    GetParam().damage(message);
    EXPECT_THAT(refusal(std::move(message)), HasSubstr(GetParam().message));
}

void add_tensors(wire::Step& step, int count) {
    for (int i = 0; i < count; ++i) {
        wire::Tensor& tensor = *step.add_activations();
        tensor.set_name("t" + std::to_string(i));
        tensor.add_shape(1);
        tensor.set_data("1234");
    }
}

constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();  // 2^63 as it arrives

INSTANTIATE_TEST_SUITE_P(
    Tensors, BadFrameTest,
    ::testing::Values(
        BadFrame{"type", [](auto& m) { m.mutable_activations(0)->set_element_type(255); },
                 "unknown element type 255"},
        BadFrame{"next_type", [](auto& m) { m.mutable_activations(0)->set_element_type(8); },
                 "unknown element type 8"},
        BadFrame{"zero", [](auto& m) { m.mutable_activations(0)->set_shape(0, 0); },
                 "has the dimension 0"},
        BadFrame{"negative", [](auto& m) { m.mutable_activations(0)->set_shape(0, -4); },
                 "has the dimension -4"},
        BadFrame{"two_to_the_63",
                 [](auto& m) { m.mutable_activations(0)->set_shape(1, kSmallest); },
                 "has the dimension -9223372036854775808"},
        BadFrame{"overflow",
                 [](auto& m) {
                     m.mutable_activations(0)->set_shape(0, std::int64_t{1} << 33);
                     m.mutable_activations(0)->set_shape(1, std::int64_t{1} << 33);
                 },
                 "overflows"},
        BadFrame{"past_the_buffer", [](auto& m) { m.mutable_activations(0)->set_shape(0, 5); },
                 "should have 320 bytes and has 256"},
        BadFrame{"before_the_end", [](auto& m) { m.mutable_activations(0)->set_shape(0, 3); },
                 "should have 192 bytes and has 256"},
        BadFrame{"no_bytes", [](auto& m) { m.mutable_activations(0)->clear_data(); },
                 "should have 256 bytes and has 0"},
        BadFrame{"rank",
                 [](auto& m) {
                     for (int i = 0; i < 8; ++i) {
                         m.mutable_activations(0)->add_shape(1);
                     }
                 },
                 "10 dimensions in a tensor, the limit is 8"},
        BadFrame{"no_name", [](auto& m) { m.mutable_activations(0)->clear_name(); },
                 "name has 0 bytes"},
        BadFrame{"long_name",
                 [](auto& m) { m.mutable_activations(0)->set_name(std::string(129, 'n')); },
                 "name has 129 bytes"},
        BadFrame{"same_name", [](auto& m) { m.mutable_activations(1)->set_name("boundary.0.0"); },
                 "comes twice"},
        BadFrame{"many", [](auto& m) { add_tensors(m, 63); }, "65 tensors in a frame"}),
    [](const auto& frame) { return frame.param.name; });

void repeat_span(wire::Step& step, int count) {
    for (int i = 0; i < count; ++i) {
        *step.mutable_plan()->add_spans() = step.plan().spans(0);
    }
}

void lengthen_table(wire::Step& step, int blocks) {
    for (int i = 0; i < blocks; ++i) {
        step.mutable_plan()->mutable_spans(0)->add_block_table(1);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, BadFrameTest,
    ::testing::Values(
        BadFrame{"no_plan", [](auto& m) { m.clear_plan(); }, "holds no spans"},
        BadFrame{"spans", [](auto& m) { repeat_span(m, 200); }, "204 spans in a step"},
        BadFrame{"rows",
                 [](auto& m) {
                     m.mutable_plan()->mutable_spans(0)->set_num_tokens(500);
                     lengthen_table(m, 15);
                 },
                 "more than 128 rows"},
        BadFrame{"no_tokens",
                 [](auto& m) { m.mutable_plan()->mutable_spans(0)->set_num_tokens(0); },
                 "holds no tokens"},
        BadFrame{"position",
                 [](auto& m) { m.mutable_plan()->mutable_spans(0)->set_past_len(0xFFFFFFFF); },
                 "the limit is 512"},
        BadFrame{"table", [](auto& m) { lengthen_table(m, 2); }, "names 3 blocks, not 1"},
        BadFrame{"long_table", [](auto& m) { lengthen_table(m, 100'000); }, "blocks in a span"},
        BadFrame{"block",
                 [](auto& m) { m.mutable_plan()->mutable_spans(0)->set_block_table(0, 64); },
                 "block 64 is outside"},
        BadFrame{"copy", [](auto& m) { m.mutable_plan()->mutable_copy_blocks(1)->set_to(64); },
                 "block copy 3 to 64"},
        BadFrame{"copies",
                 [](auto& m) {
                     for (int i = 0; i < 63; ++i) {
                         m.mutable_plan()->add_copy_blocks();
                     }
                 },
                 "65 block copies"},
        BadFrame{"kept", [](auto& m) { m.mutable_plan()->set_kept_rows(1, 4); }, "kept row 4"},
        BadFrame{"kept_twice", [](auto& m) { m.mutable_plan()->set_kept_rows(1, 0); },
                 "kept row 0 is not ascending"},
        BadFrame{"timings",
                 [](auto& m) {
                     for (int i = 0; i < 256; ++i) {
                         m.add_timings();
                     }
                 },
                 "257 timings"}),
    [](const auto& frame) { return frame.param.name; });

TEST(WireCodec, BadResultsAreRefused) {
    wire::StepResult message;
    message.set_status(3);
    EXPECT_THROW(decode_result(wire::StepResult(message)), Error);
    message.set_status(static_cast<std::uint32_t>(StepStatus::kFailed));
    EXPECT_NO_THROW(decode_result(wire::StepResult(message)));
    message.add_outputs();
    EXPECT_THROW(decode_result(wire::StepResult(message)), Error);
}

TEST(WireText, IsAlwaysUtf8AndBounded) {
    EXPECT_EQ(wire_text("schön 🦊"), "schön 🦊");
    EXPECT_EQ(wire_text("a\xFF\xC3z"), "a??z");
    EXPECT_EQ(wire_text("\xED\xA0\x80"), "???");       // a surrogate
    EXPECT_EQ(wire_text("\xC0\xAF"), "??");            // overlong
    EXPECT_EQ(wire_text("\xF0\x9F\xA6"), "???");       // cut short
    EXPECT_EQ(wire_text("\xF4\x90\x80\x80"), "????");  // past the last character
    const std::string text = wire_text(std::string(kMaxWireTextBytes - 1, 'a') + "ö");
    EXPECT_EQ(text.size(), kMaxWireTextBytes - 1);  // not half a character
}

}  // namespace
}  // namespace shardline
