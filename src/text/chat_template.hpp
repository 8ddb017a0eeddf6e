#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace shardline {

// A model's own chat template, rendered by MiniJinja as Hugging Face renders it (trim_blocks,
// lstrip_blocks, loop controls, tojson, strftime_now, raise_exception, Python string methods).
// Thread-safe after construction; steps and output of a rendering are bounded.
class ChatTemplate final {
public:
    // From chat_template.jinja, else tokenizer_config.json, else the tokenizer model's runtime
    // info. Throws Error when there is none (kNotFound), or when it does not parse or names a
    // filter, test, function or method we do not have (kUnsupported): it is refused at load,
    // never swapped for another.
    static ChatTemplate open(const std::filesystem::path& model_directory);
    static ChatTemplate parse(const std::string& source, const std::string& bos_token,
                              const std::string& eos_token);

    ChatTemplate(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // `inputs_json` is an object with "messages", optionally "tools", "documents" and further
    // template variables. Throws Error(kInvalidArgument) carrying the template's own message when
    // it raises (raise_exception), or saying where it fails on these inputs.
    std::string render(const std::string& inputs_json, bool add_generation_prompt) const;

    const std::string& source() const;

private:
    struct State;
    explicit ChatTemplate(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace shardline
