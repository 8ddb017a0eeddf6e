#include "cli/coordinator.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/model_argument.hpp"
#include "cli/progress.hpp"

namespace shardline {

namespace {

std::filesystem::path checked_model(const std::string& model, bool quiet) {
    const std::filesystem::path directory = resolve_model(model, quiet);
    require_checked_model(directory, quiet);
    return directory;
}

std::unique_ptr<FleetChain> open_chain(const FleetArguments& arguments,
                                       const std::filesystem::path& directory, bool quiet) {
    ProgressLine line(quiet);
    return FleetChain::open(
        to_fleet_options(arguments, directory),
        [&line](const std::string& where, const std::string& phase, double fraction) {
            line.update(fmt::format("{}: {}", where, phase), fraction);
        });
}

std::vector<std::string> track_names(const FleetChain& chain) {
    std::vector<std::string> names;
    for (const StageDescription& stage : chain.stages()) {
        names.push_back(fmt::format("{}, {}", to_string(stage.spec.range), stage.where));
    }
    return names;
}

}  // namespace

Coordinator::Coordinator(const FleetArguments& arguments, bool quiet, bool measured)
    : trace_(open_trace(arguments.trace)),
      directory_(checked_model(arguments.model, quiet)),
      tokenizer_(Tokenizer::open(directory_)) {
    try {
        chat_template_.emplace(ChatTemplate::open(directory_));
    } catch (const Error& error) {
        chat_refusal_ = error.what();
    }
    chain_ = open_chain(arguments, directory_, quiet);
    EngineOptions options;
    options.num_blocks = chain_->num_blocks();
    options.max_context = chain_->max_context();
    options.vocab_size = chain_->model_info().vocab_size;
    options.max_step_tokens = FleetOptions{}.max_step_tokens;
    options.max_sequences = arguments.max_sequences;
    options.reuse_answers = arguments.reuse_answers;
    if (trace_ != nullptr) {
        trace_->record(options, track_names(*chain_));
    }
    engine_ = std::make_unique<Engine>(options);
    if (!measured) {
        engine_->start(*chain_);
        chain_->start(*engine_);
        return;
    }
    measured_ = std::make_unique<MeasuredLink>(*chain_);
    measured_->listen(*engine_);
    engine_->start(*measured_);
    chain_->start(*measured_);
}

Coordinator::~Coordinator() {
    engine_->stop();
    chain_->stop();
}

}  // namespace shardline
