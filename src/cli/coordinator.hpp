#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/fleet_options.hpp"
#include "cli/measured_link.hpp"
#include "cli/trace_file.hpp"
#include "engine/engine.hpp"
#include "fleet/fleet_chain.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace shardline {

// Everything a coordinator process runs, put together and taken apart in the right order: the
// model's text side, the chain, the engine on it.
class Coordinator final {
public:
    // Resolves, checks, places, loads; progress on stderr unless quiet. Throws Error.
    // `measured` puts a MeasuredLink between engine and chain.
    Coordinator(const FleetArguments& arguments, bool quiet, bool measured = false);
    Coordinator(const Coordinator&) = delete;
    Coordinator& operator=(const Coordinator&) = delete;
    ~Coordinator();

    Engine& engine() { return *engine_; }
    FleetChain& chain() { return *chain_; }
    const FleetChain& chain() const { return *chain_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }
    const ModelInfo& model_info() const { return chain_->model_info(); }

    // Null when the model has none, or one we refuse; `chat_refusal` then says why.
    const ChatTemplate* chat_template() const {
        return chat_template_.has_value() ? &*chat_template_ : nullptr;
    }
    const std::string& chat_refusal() const { return chat_refusal_; }

    // Null unless measured.
    MeasuredLink* measured_link() { return measured_.get(); }
    const std::filesystem::path& model_directory() const { return directory_; }

private:
    const std::unique_ptr<TraceFile> trace_;  // first: refused before minutes of loading
    std::filesystem::path directory_;
    Tokenizer tokenizer_;
    std::optional<ChatTemplate> chat_template_;
    std::string chat_refusal_;
    std::unique_ptr<FleetChain> chain_;
    std::unique_ptr<MeasuredLink> measured_;
    std::unique_ptr<Engine> engine_;
};

}  // namespace shardline
