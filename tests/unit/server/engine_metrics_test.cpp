#include "server/engine_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardline {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Histogram, CountsByRange) {
    Histogram<2> values{{1.0, 10.0}};
    for (const double value : {0.5, 1.0, 1.1, 10.0, 11.0, 1e9}) {
        values.add(value);
    }
    EXPECT_THAT(values.counts, testing::ElementsAre(2, 2, 2));
    EXPECT_DOUBLE_EQ(values.sum, 0.5 + 1.0 + 1.1 + 10.0 + 11.0 + 1e9);
}

TEST(EngineMetrics, TellsWhatTheEngineCounted) {
    EngineStats stats;
    stats.running = 3;
    stats.blocks_cached = 5;
    stats.tokens = 4711;
    stats.preemptions = 2;
    stats.stages = {{10, 500.0, 2000.0, 64}, {10, 0.0, 1500.0, 128}};
    stats.first_token_s.add(0.03);
    stats.first_token_s.add(100.0);
    stats.step_rows.add(7);
    const std::string text = engine_metrics(stats, true);
    EXPECT_THAT(text, HasSubstr("# TYPE shardline_requests_running gauge\n"
                                "shardline_requests_running 3\n"));
    EXPECT_THAT(text, HasSubstr("shardline_chain_up 1\n"));
    EXPECT_THAT(text, HasSubstr("shardline_kv_blocks_cached 5\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE shardline_tokens_generated_total counter\n"
                                "shardline_tokens_generated_total 4711\n"));
    EXPECT_THAT(text, HasSubstr("shardline_preemptions_total 2\n"));
    EXPECT_THAT(text, HasSubstr("shardline_stage_busy_seconds_total{stage=\"1\"} 1.5\n"));
    EXPECT_THAT(text, HasSubstr("shardline_stage_queue_seconds_total{stage=\"0\"} 0.5\n"));
    EXPECT_THAT(text, HasSubstr("shardline_time_to_first_token_seconds_bucket{le=\"0.02\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("shardline_time_to_first_token_seconds_bucket{le=\"0.05\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("shardline_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("shardline_time_to_first_token_seconds_count 2\n"));
    EXPECT_THAT(text, HasSubstr("shardline_step_rows_bucket{le=\"8\"} 1\n"));
    EXPECT_THAT(engine_metrics(stats, false), HasSubstr("shardline_chain_up 0\n"));
}

}  // namespace
}  // namespace shardline
