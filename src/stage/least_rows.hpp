#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace shardline {

// The most rows that least_rows() tries.
inline constexpr std::uint32_t kMostProbedRows = 8;

// Matrix kernels are chosen by how many rows there are, and two kernels need not sum in the same
// order: a row's bits may depend on how many others share its step. `first_row` computes the same
// row as the first of n and gives its bits; returned is the least n from which on they stay the
// same, at most `most`. (SmolLM2 with float zero points: 2; with integer ones, or int8: 1; a Q4_K_M
// file with weights in groups of 16: 5. All on the CPU.)
std::uint32_t least_rows(std::uint32_t most,
                         const std::function<std::string(std::uint32_t)>& first_row);

// A device makes kernels for every number of rows that it meets and keeps them, a megabyte or two
// each time (some 700 MiB for a toy model that has met 440 sizes). So steps are filled up to one of
// few sizes: all up to 32, from there eight between powers of two. Given is how many rows a step of
// `rows` computes, at most `most`.
std::uint32_t filled_up_rows(std::uint32_t rows, std::uint32_t most);

}  // namespace shardline
