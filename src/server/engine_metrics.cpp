#include "server/engine_metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

namespace shardline {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families final {
public:
    void gauge(const char* name, const char* help, double value) {
        ClientMetric metric;
        metric.gauge.value = value;
        add(name, help, MetricType::Gauge).metric.push_back(metric);
    }

    void counter(const char* name, const char* help, double value) {
        ClientMetric metric;
        metric.counter.value = value;
        add(name, help, MetricType::Counter).metric.push_back(metric);
    }

    template <std::size_t kNumBounds>
    void histogram(const char* name, const char* help, const Histogram<kNumBounds>& values) {
        ClientMetric metric;
        std::uint64_t count = 0;
        for (std::size_t i = 0; i < values.counts.size(); ++i) {
            count += values.counts[i];
            metric.histogram.bucket.push_back(
                {count,
                 i < kNumBounds ? values.bounds[i] : std::numeric_limits<double>::infinity()});
        }
        metric.histogram.sample_count = count;
        metric.histogram.sample_sum = values.sum;
        add(name, help, MetricType::Histogram).metric.push_back(metric);
    }

    // A counter per stage of the chain, from what `value` reads out of each.
    template <typename Value>
    void per_stage(const char* name, const char* help, const std::vector<StageStats>& stages,
                   const Value& value) {
        MetricFamily& family = add(name, help, MetricType::Counter);
        for (std::size_t i = 0; i < stages.size(); ++i) {
            ClientMetric metric;
            metric.label = {{"stage", std::to_string(i)}};
            metric.counter.value = value(stages[i]);
            family.metric.push_back(metric);
        }
    }

    std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

private:
    MetricFamily& add(const char* name, const char* help, MetricType type) {
        MetricFamily family;
        family.name = std::string("shardline_") + name;
        family.help = help;
        family.type = type;
        families_.push_back(std::move(family));
        return families_.back();
    }

    std::vector<MetricFamily> families_;
};

void add_requests(const EngineStats& stats, Families& families) {
    families.gauge("requests_running", "Requests being answered.", stats.running);
    families.gauge("requests_waiting", "Requests in line, preempted ones too.", stats.waiting);
    families.counter("preemptions_total", "Times a request gave its KV blocks back.",
                     static_cast<double>(stats.preemptions));
    families.counter("tokens_generated_total", "Tokens drawn.", static_cast<double>(stats.tokens));
    families.counter("prompt_tokens_reused_total", "Prompt tokens found in the prefix cache.",
                     static_cast<double>(stats.reused_tokens));
    families.histogram("time_to_first_token_seconds", "From submission to the first token.",
                       stats.first_token_s);
    families.histogram("inter_token_seconds", "Between two tokens of one answer.",
                       stats.between_tokens_s);
}

void add_blocks(const EngineStats& stats, Families& families) {
    families.gauge("kv_blocks_used", "KV blocks held by requests.", stats.blocks_used);
    families.gauge("kv_blocks_cached", "KV blocks held by nobody whose prompt may come again.",
                   stats.blocks_cached);
    families.gauge("kv_blocks_total", "KV blocks of every stage's pool.", stats.blocks_total);
}

void add_steps(const EngineStats& stats, Families& families) {
    constexpr double kMsPerSecond = 1000.0;
    families.counter("steps_total", "Steps sent through the chain.",
                     static_cast<double>(stats.steps));
    families.histogram("step_rows", "Rows of a step.", stats.step_rows);
    families.counter("engine_busy_seconds_total", "The engine thread's own work.",
                     stats.busy_ms / kMsPerSecond);
    families.per_stage("stage_busy_seconds_total", "Time a stage computed.", stats.stages,
                       [](const StageStats& stage) { return stage.execute_ms / kMsPerSecond; });
    families.per_stage("stage_queue_seconds_total", "Time steps waited for a stage.", stats.stages,
                       [](const StageStats& stage) { return stage.queue_ms / kMsPerSecond; });
    families.per_stage("stage_received_bytes_total", "Activations a stage received.", stats.stages,
                       [](const StageStats& stage) { return static_cast<double>(stage.bytes_in); });
}

}  // namespace

std::string engine_metrics(const EngineStats& stats, bool chain_is_up) {
    Families families;
    families.gauge("chain_up", "1 when every stage of the chain can be reached.",
                   chain_is_up ? 1.0 : 0.0);
    add_requests(stats, families);
    add_blocks(stats, families);
    add_steps(stats, families);
    return families.text();
}

}  // namespace shardline
