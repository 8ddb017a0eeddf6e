#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/byte_range.hpp"
#include "shard/piece_source.hpp"
#include "stage/stage_loader.hpp"
#include "step/stage_spec.hpp"

namespace shardline {

// Where a worker gets what it lacks of a model: the coordinator, over the load stream. Both throw
// Error when the coordinator is gone or sends something else.
struct PieceSupplier {
    std::function<std::string()> xml;

    // One call of `take` per range, in this order; the bytes are not checked against the hash yet.
    std::function<void(const std::vector<ByteRange>& ranges,
                       const std::function<void(const Piece&)>& take)>
        pieces;
};

// Ranges in one request to the supplier.
inline constexpr std::size_t kPiecesPerRequest = 256;

// Called between the graph's arrival and the weights': with the small constants of all layers
// there, so that a stage that does not fit is refused before its weights travel.
using CheckBeforeWeights = std::function<void(const std::filesystem::path& model_directory)>;

// Completes what `store_root` holds of the model until the stage can be loaded from the directory
// that is returned. What is there is read and compared with its hashes first, and only what is
// missing or damaged is asked for; a piece that arrives damaged is asked for again. Throws Error.
std::filesystem::path fetch_model(const std::filesystem::path& store_root, const StageSpec& spec,
                                  const PieceSupplier& supplier, const CheckBeforeWeights& check,
                                  const LoadProgress& progress);

}  // namespace shardline
