#include "model/gguf_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

#include "base/error.hpp"

namespace shardline {

namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{64} << 10;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kMaxKeyBytes = 65535;  // as the format says
constexpr std::uint64_t kMaxTensorNameBytes = 256;

// The least that a key-value pair and a tensor entry take: what a count has to be paid with.
constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

enum ValueType : std::uint32_t {
    kUint8,
    kInt8,
    kUint16,
    kInt16,
    kUint32,
    kInt32,
    kFloat32,
    kBool,
    kString,
    kArray,
    kUint64,
    kInt64,
    kFloat64,
};

struct TensorType {
    std::uint32_t id;
    std::string_view name;
    std::uint64_t block_items;
    std::uint64_t block_bytes;
};

constexpr std::array kTensorTypes = {
    TensorType{0, "F32", 1, 4},         TensorType{1, "F16", 1, 2},
    TensorType{2, "Q4_0", 32, 18},      TensorType{3, "Q4_1", 32, 20},
    TensorType{6, "Q5_0", 32, 22},      TensorType{7, "Q5_1", 32, 24},
    TensorType{8, "Q8_0", 32, 34},      TensorType{9, "Q8_1", 32, 36},
    TensorType{10, "Q2_K", 256, 84},    TensorType{11, "Q3_K", 256, 110},
    TensorType{12, "Q4_K", 256, 144},   TensorType{13, "Q5_K", 256, 176},
    TensorType{14, "Q6_K", 256, 210},   TensorType{15, "Q8_K", 256, 292},
    TensorType{16, "IQ2_XXS", 256, 66}, TensorType{17, "IQ2_XS", 256, 74},
    TensorType{18, "IQ3_XXS", 256, 98}, TensorType{19, "IQ1_S", 256, 50},
    TensorType{20, "IQ4_NL", 32, 18},   TensorType{21, "IQ3_S", 256, 110},
    TensorType{22, "IQ2_S", 256, 82},   TensorType{23, "IQ4_XS", 256, 136},
    TensorType{24, "I8", 1, 1},         TensorType{25, "I16", 1, 2},
    TensorType{26, "I32", 1, 4},        TensorType{27, "I64", 1, 8},
    TensorType{28, "F64", 1, 8},        TensorType{29, "IQ1_M", 256, 56},
    TensorType{30, "BF16", 1, 2},       TensorType{34, "TQ1_0", 256, 54},
    TensorType{35, "TQ2_0", 256, 66},   TensorType{39, "MXFP4", 32, 17},
};

const TensorType* find_tensor_type(std::uint32_t id) {
    const auto* found = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                     [id](const TensorType& type) { return type.id == id; });
    return found == kTensorTypes.end() ? nullptr : found;
}

[[noreturn]] void corrupt(const std::string& what) {
    throw Error(ErrorCode::kCorrupt, what);
}

// Names come from the file: what is not plain text is not repeated in a message.
std::string quoted(std::string_view name) {
    constexpr std::size_t kMaxShown = 80;
    std::string text = "'";
    for (const char c : name.substr(0, kMaxShown)) {
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text + (name.size() > kMaxShown ? "...'" : "'");
}

// Reads forward over the file's bytes; knows what it is reading, for messages.
class Reader final {
public:
    explicit Reader(std::span<const std::byte> file) : file_(file) {}

    void set_subject(std::string subject) { subject_ = std::move(subject); }
    std::uint64_t position() const { return position_; }
    std::uint64_t remaining() const { return file_.size() - position_; }

    template <typename Number>
    Number number() {
        Number value{};
        std::memcpy(&value, take(sizeof(Number)), sizeof(Number));
        return value;
    }

    std::string_view string(std::uint64_t max_bytes) {
        const auto size = number<std::uint64_t>();
        if (size > max_bytes) {
            corrupt(fmt::format("{}: a string of {} bytes, at most {} are possible here", subject_,
                                size, max_bytes));
        }
        const auto* bytes = take(size);
        return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
    }

    std::string_view string() { return string(remaining()); }

    const std::byte* take(std::uint64_t size) {
        if (size > remaining()) {
            corrupt(fmt::format("{}: the file ends at byte {}, {} bytes short", subject_,
                                file_.size(), size - remaining()));
        }
        const std::byte* bytes = file_.data() + position_;
        position_ += size;
        return bytes;
    }

    const std::string& subject() const { return subject_; }

private:
    std::span<const std::byte> file_;
    std::uint64_t position_ = 0;
    std::string subject_ = "GGUF header";
};

std::uint64_t scalar_bytes(std::uint32_t type) {
    switch (type) {
        case kUint8:
        case kInt8:
        case kBool: return 1;
        case kUint16:
        case kInt16: return 2;
        case kUint32:
        case kInt32:
        case kFloat32: return 4;
        case kUint64:
        case kInt64:
        case kFloat64: return 8;
        default: return 0;
    }
}

GgufArray read_array(Reader& reader) {
    GgufArray array;
    array.item_type = reader.number<std::uint32_t>();
    array.num_items = reader.number<std::uint64_t>();
    if (array.item_type == kArray) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{}: arrays of arrays are not supported", reader.subject()));
    }
    const bool strings = array.item_type == kString;
    const std::uint64_t item_bytes = strings ? 8 : scalar_bytes(array.item_type);
    if (item_bytes == 0) {
        corrupt(fmt::format("{}: unknown array item type {}", reader.subject(), array.item_type));
    }
    if (array.num_items > reader.remaining() / item_bytes) {
        corrupt(fmt::format("{}: {} array items do not fit into the {} bytes that follow",
                            reader.subject(), array.num_items, reader.remaining()));
    }
    if (!strings) {
        reader.take(array.num_items * item_bytes);
        return array;
    }
    for (std::uint64_t i = 0; i < array.num_items; ++i) {
        reader.string();
    }
    return array;
}

bool read_bool(Reader& reader) {
    const auto value = reader.number<std::uint8_t>();
    if (value > 1) {
        corrupt(fmt::format("{}: {} is no truth value", reader.subject(), value));
    }
    return value == 1;
}

GgufValue read_value(Reader& reader) {
    const auto type = reader.number<std::uint32_t>();
    switch (type) {
        case kUint8: return std::uint64_t{reader.number<std::uint8_t>()};
        case kUint16: return std::uint64_t{reader.number<std::uint16_t>()};
        case kUint32: return std::uint64_t{reader.number<std::uint32_t>()};
        case kUint64: return reader.number<std::uint64_t>();
        case kInt8: return std::int64_t{reader.number<std::int8_t>()};
        case kInt16: return std::int64_t{reader.number<std::int16_t>()};
        case kInt32: return std::int64_t{reader.number<std::int32_t>()};
        case kInt64: return reader.number<std::int64_t>();
        case kFloat32: return double{reader.number<float>()};
        case kFloat64: return reader.number<double>();
        case kBool: return read_bool(reader);
        case kString: return reader.string();
        case kArray: return read_array(reader);
        default: corrupt(fmt::format("{}: unknown value type {}", reader.subject(), type));
    }
}

std::map<std::string_view, GgufValue> read_metadata(Reader& reader, std::uint64_t num_pairs) {
    std::map<std::string_view, GgufValue> metadata;
    for (std::uint64_t i = 0; i < num_pairs; ++i) {
        reader.set_subject(fmt::format("GGUF metadata pair {}", i));
        const std::string_view key = reader.string(kMaxKeyBytes);
        if (key.empty()) {
            corrupt(fmt::format("{} has an empty key", reader.subject()));
        }
        reader.set_subject(fmt::format("GGUF key {}", quoted(key)));
        if (!metadata.emplace(key, read_value(reader)).second) {
            corrupt(fmt::format("{} is there twice", reader.subject()));
        }
    }
    return metadata;
}

std::uint64_t tensor_bytes(const GgufTensor& tensor, const std::string& subject) {
    const TensorType* type = find_tensor_type(tensor.type);
    if (type == nullptr) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("{} has the unknown tensor type {}", subject, tensor.type));
    }
    constexpr std::uint64_t kMaxItems = std::numeric_limits<std::int64_t>::max() / 8;
    std::uint64_t num_items = 1;
    for (const std::uint64_t dimension : tensor.dimensions) {
        if (dimension == 0) {
            corrupt(fmt::format("{} has a dimension of 0", subject));
        }
        if (dimension > kMaxItems / num_items) {
            corrupt(fmt::format("{}: its dimensions overflow", subject));
        }
        num_items *= dimension;
    }
    if (tensor.dimensions.front() % type->block_items != 0) {
        corrupt(fmt::format("{}: rows of {} items are not whole blocks of {} ({})", subject,
                            tensor.dimensions.front(), type->block_items, type->name));
    }
    const std::uint64_t num_blocks = num_items / type->block_items;
    if (num_blocks > std::numeric_limits<std::int64_t>::max() / type->block_bytes) {
        corrupt(fmt::format("{}: its size overflows", subject));
    }
    return num_blocks * type->block_bytes;
}

GgufTensor read_tensor(Reader& reader, std::uint64_t index) {
    reader.set_subject(fmt::format("GGUF tensor {}", index));
    GgufTensor tensor;
    tensor.name = reader.string(kMaxTensorNameBytes);
    if (tensor.name.empty()) {
        corrupt(fmt::format("{} has no name", reader.subject()));
    }
    reader.set_subject(fmt::format("GGUF tensor {}", quoted(tensor.name)));
    const auto num_dimensions = reader.number<std::uint32_t>();
    if (num_dimensions == 0 || num_dimensions > kMaxDimensions) {
        corrupt(fmt::format("{} has {} dimensions, 1 to {} are possible", reader.subject(),
                            num_dimensions, kMaxDimensions));
    }
    for (std::uint32_t i = 0; i < num_dimensions; ++i) {
        tensor.dimensions.push_back(reader.number<std::uint64_t>());
    }
    tensor.type = reader.number<std::uint32_t>();
    tensor.offset = reader.number<std::uint64_t>();
    tensor.bytes = tensor_bytes(tensor, reader.subject());
    return tensor;
}

std::uint64_t read_alignment(const std::map<std::string_view, GgufValue>& metadata) {
    const auto found = metadata.find("general.alignment");
    if (found == metadata.end()) {
        return kDefaultAlignment;
    }
    const auto* value = std::get_if<std::uint64_t>(&found->second);
    if (value == nullptr || !std::has_single_bit(*value) || *value > kMaxAlignment) {
        corrupt(fmt::format("GGUF key 'general.alignment' is not a power of two up to {}",
                            kMaxAlignment));
    }
    return *value;
}

// Turns offsets within the data section into offsets within the file, checking each.
void place_tensors(std::vector<GgufTensor>& tensors, std::uint64_t header_end,
                   std::uint64_t alignment, std::uint64_t file_bytes) {
    const std::uint64_t data_start = (header_end + alignment - 1) / alignment * alignment;
    for (GgufTensor& tensor : tensors) {
        if (tensor.offset % alignment != 0) {
            corrupt(fmt::format("GGUF tensor {}: offset {} is not a multiple of the alignment {}",
                                quoted(tensor.name), tensor.offset, alignment));
        }
        if (data_start > file_bytes || tensor.offset > file_bytes - data_start ||
            tensor.bytes > file_bytes - data_start - tensor.offset) {
            corrupt(
                fmt::format("GGUF tensor {} takes {} bytes from {} after the header, but the "
                            "file ends at byte {}: it is cut short or damaged",
                            quoted(tensor.name), tensor.bytes, tensor.offset, file_bytes));
        }
        tensor.offset += data_start;
    }
}

std::uint32_t read_version(Reader& reader) {
    if (reader.remaining() < kMagic.size() ||
        std::memcmp(reader.take(kMagic.size()), kMagic.data(), kMagic.size()) != 0) {
        corrupt("not a GGUF file: it does not start with 'GGUF'");
    }
    const auto version = reader.number<std::uint32_t>();
    if (version != 2 && version != 3) {
        const bool swapped = version == 0x02000000 || version == 0x03000000;
        throw Error(
            ErrorCode::kUnsupported,
            swapped ? "GGUF files in big-endian byte order are not supported"
                    : fmt::format("GGUF version {} is not supported, only 2 and 3 are", version));
    }
    return version;
}

}  // namespace

GgufHeader GgufHeader::parse(std::span<const std::byte> file) {
    Reader reader(file);
    GgufHeader header;
    header.version_ = read_version(reader);
    const auto num_tensors = reader.number<std::uint64_t>();
    const auto num_pairs = reader.number<std::uint64_t>();
    if (num_tensors > reader.remaining() / kMinTensorBytes ||
        num_pairs > reader.remaining() / kMinPairBytes) {
        corrupt(
            fmt::format("GGUF header: {} tensors and {} metadata pairs do not fit into a file "
                        "of {} bytes",
                        num_tensors, num_pairs, file.size()));
    }
    header.metadata_ = read_metadata(reader, num_pairs);
    header.alignment_ = read_alignment(header.metadata_);
    std::set<std::string_view> names;
    for (std::uint64_t i = 0; i < num_tensors; ++i) {
        header.tensors_.push_back(read_tensor(reader, i));
        if (!names.insert(header.tensors_.back().name).second) {
            corrupt(fmt::format("{} is there twice", reader.subject()));
        }
    }
    place_tensors(header.tensors_, reader.position(), header.alignment_, file.size());
    const auto architecture = header.text("general.architecture");
    if (!architecture || architecture->empty()) {
        corrupt("GGUF key 'general.architecture' is missing or not a text");
    }
    header.architecture_ = *architecture;
    return header;
}

bool GgufHeader::has_tensor(std::string_view name) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [name](const GgufTensor& tensor) { return tensor.name == name; });
}

std::optional<std::string_view> GgufHeader::text(std::string_view key) const {
    const auto found = metadata_.find(key);
    const auto* value =
        found == metadata_.end() ? nullptr : std::get_if<std::string_view>(&found->second);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::uint64_t> GgufHeader::number(std::string_view key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) {
        return std::nullopt;
    }
    if (const auto* value = std::get_if<std::uint64_t>(&found->second)) {
        return *value;
    }
    const auto* value = std::get_if<std::int64_t>(&found->second);
    return value == nullptr || *value < 0 ? std::nullopt
                                          : std::optional(static_cast<std::uint64_t>(*value));
}

std::optional<double> GgufHeader::real(std::string_view key) const {
    const auto found = metadata_.find(key);
    const auto* value = found == metadata_.end() ? nullptr : std::get_if<double>(&found->second);
    if (value != nullptr) {
        return *value;
    }
    const auto whole = number(key);
    return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::string gguf_type_name(std::uint32_t type) {
    const TensorType* known = find_tensor_type(type);
    return known == nullptr ? fmt::format("type {}", type) : std::string(known->name);
}

}  // namespace shardline
