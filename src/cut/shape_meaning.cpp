#include "cut/shape_meaning.hpp"

#include <array>
#include <utility>

#include "cut/shaped_copies.hpp"

namespace shardline {

namespace {

// Batch, sequence and total are primes, larger than the small factors that appear beside them and
// small enough that products of all fit into 32 bits.
constexpr StepExtents kTelltale = {.batch = 211, .sequence = 223, .total = 457};

using KnownExtents = std::array<std::pair<Extent, std::int64_t>, 5>;

DimensionMeaning meaning_of(std::int64_t size, const KnownExtents& known) {
    for (const auto& [extent, extent_size] : known) {
        if (size == extent_size) {
            return {extent, 1};
        }
    }
    for (const auto& [extent, extent_size] : known) {
        if (extent_size > 1 && size != 0 && size % extent_size == 0) {
            return {extent, size / extent_size};
        }
    }
    return {Extent::kFixed, size};
}

ShapeMeaning meaning_of(const ov::PartialShape& open, const ov::PartialShape& sized,
                        const KnownExtents& known) {
    ShapeMeaning meaning(sized.rank().is_static() ? sized.size() : 0);
    for (std::size_t i = 0; i < meaning.size(); ++i) {
        if (open.rank().is_static() && open[i].is_static()) {
            meaning[i] = {Extent::kFixed, open[i].get_length()};
        } else if (sized[i].is_static()) {
            meaning[i] = meaning_of(sized[i].get_length(), known);
        }
    }
    return meaning;
}

std::vector<ShapeMeaning> meanings_at(const DataFlow& flow,
                                      const std::vector<ov::Output<ov::Node>>& outputs,
                                      const StepExtents& extents, bool tolerant) {
    ShapedCopies copies(flow, extents, tolerant);
    copies.add(outputs);
    const KnownExtents known = {{{Extent::kRows, extents.batch * extents.sequence},
                                 {Extent::kTotal, extents.total},
                                 {Extent::kPast, extents.past()},
                                 {Extent::kSequence, extents.sequence},
                                 {Extent::kBatch, extents.batch}}};
    std::vector<ShapeMeaning> meanings;
    meanings.reserve(outputs.size());
    for (const auto& output : outputs) {
        meanings.push_back(
            meaning_of(output.get_partial_shape(), copies.of(output).get_partial_shape(), known));
    }
    return meanings;
}

}  // namespace

std::vector<ShapeMeaning> shape_meanings(const DataFlow& flow,
                                         const std::vector<ov::Output<ov::Node>>& outputs) {
    // Some graphs are written for one sequence at a time and refuse any other batch; others hold
    // shapes that no inference accepts, since the device's fusion of attention never looks at them.
    StepExtents alone = kTelltale;
    alone.batch = 1;
    for (const StepExtents& extents : {kTelltale, alone}) {
        try {
            return meanings_at(flow, outputs, extents, false);
        } catch (const ov::Exception&) {
            continue;
        }
    }
    return meanings_at(flow, outputs, kTelltale, true);
}

}  // namespace shardline
