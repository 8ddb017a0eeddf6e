#include "model/weight_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <openvino/op/constant.hpp>
#include <openvino/op/util/multi_subgraph_base.hpp>
#include <optional>
#include <pugixml.hpp>

#include "base/error.hpp"

namespace shardline {

namespace {

std::optional<std::uint64_t> parse_number(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

// Walks without recursion: a file may nest elements as deep as it likes.
class ConstantWalker final : public pugi::xml_tree_walker {
public:
    explicit ConstantWalker(const std::string& file_name) : file_name_(file_name) {}

    bool for_each(pugi::xml_node& node) override {
        if (std::strcmp(node.name(), "layer") == 0) {
            ++num_layers_;
            if (std::strcmp(node.attribute("type").value(), "Const") == 0) {
                add(node);
            }
        }
        return true;
    }

    std::multimap<std::string, ByteRange> take_constants() { return std::move(constants_); }
    std::uint64_t weights_end() const { return end_; }
    const std::string& last_name() const { return last_name_; }  // of the constant at the end
    std::size_t num_layers() const { return num_layers_; }

private:
    void add(const pugi::xml_node& layer) {
        const std::string name = layer.attribute("name").value();
        const pugi::xml_node data = layer.child("data");
        const auto offset = parse_number(data.attribute("offset").value());
        const auto size = parse_number(data.attribute("size").value());
        if (!offset || !size) {
            throw Error(
                ErrorCode::kCorrupt,
                fmt::format("{}: constant '{}' has no valid offset and size", file_name_, name));
        }
        const bool overflows = *offset > std::numeric_limits<std::uint64_t>::max() - *size;
        const std::uint64_t end =
            overflows ? std::numeric_limits<std::uint64_t>::max() : *offset + *size;
        if (end > end_) {
            end_ = end;
            last_name_ = name;
        }
        constants_.emplace(name, ByteRange{*offset, *size});
    }

    const std::string& file_name_;
    std::multimap<std::string, ByteRange> constants_;
    std::uint64_t end_ = 0;
    std::string last_name_;
    std::size_t num_layers_ = 0;
};

void collect(const WeightMap& map, const ov::Model& graph, std::vector<ByteRange>& ranges) {
    for (const auto& op : graph.get_ops()) {
        if (const auto* constant = dynamic_cast<const ov::op::v0::Constant*>(op.get())) {
            const auto [first, last] = map.constants().equal_range(constant->get_friendly_name());
            for (auto it = first; it != last; ++it) {
                ranges.push_back(it->second);
            }
        }
        if (const auto* nested = dynamic_cast<const ov::op::util::MultiSubGraphOp*>(op.get())) {
            for (const auto& body : nested->get_functions()) {
                collect(map, *body, ranges);
            }
        }
    }
}

}  // namespace

WeightMap WeightMap::parse(std::string_view xml, const std::string& file_name,
                           std::uint64_t bin_bytes) {
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
    if (!result) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} is not valid XML: {} at byte {}", file_name,
                                result.description(), result.offset));
    }
    if (!document.child("net")) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} is not an OpenVINO IR: it has no <net>", file_name));
    }
    ConstantWalker walker(file_name);
    document.traverse(walker);
    if (walker.num_layers() == 0) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("{} is not an OpenVINO IR: it has no layers", file_name));
    }
    if (walker.weights_end() > bin_bytes) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("the weights of {} are cut short: its constants, the last of them "
                                "'{}', take {} bytes, but the .bin file has only {}; copy the "
                                "model again",
                                file_name, walker.last_name(), walker.weights_end(), bin_bytes));
    }
    WeightMap map;
    map.constants_ = walker.take_constants();
    map.end_ = walker.weights_end();
    return map;
}

std::vector<ByteRange> WeightMap::small_ranges(std::uint64_t max_bytes) const {
    std::vector<ByteRange> ranges;
    for (const auto& [name, range] : constants_) {
        if (range.size <= max_bytes) {
            ranges.push_back(range);
        }
    }
    return ranges;
}

std::vector<ByteRange> weight_ranges(const WeightMap& map, const std::shared_ptr<ov::Model>& part) {
    std::vector<ByteRange> ranges;
    collect(map, *part, ranges);
    return ranges;
}

}  // namespace shardline
