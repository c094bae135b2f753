#include "registry/tensors/files/safetensors.h"

#include <ATen/core/Formatting.h>
#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr const char* kMetadataKey = "__metadata__";

struct Dtype {
  std::string_view name;
  at::ScalarType type;
};

/// In the order in which the reference implementation lays tensors out: wide ones first, so that all are aligned.
constexpr std::array kDtypes = {
    Dtype{"U64", at::kUInt64},
    Dtype{"I64", at::kLong},
    Dtype{"F64", at::kDouble},
    Dtype{"C64", at::kComplexFloat},
    Dtype{"F32", at::kFloat},
    Dtype{"U32", at::kUInt32},
    Dtype{"I32", at::kInt},
    Dtype{"BF16", at::kBFloat16},
    Dtype{"F16", at::kHalf},
    Dtype{"U16", at::kUInt16},
    Dtype{"I16", at::kShort},
    Dtype{"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    Dtype{"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    Dtype{"F8_E8M0", at::kFloat8_e8m0fnu},
    Dtype{"F8_E4M3", at::kFloat8_e4m3fn},
    Dtype{"F8_E5M2", at::kFloat8_e5m2},
    Dtype{"I8", at::kChar},
    Dtype{"U8", at::kByte},
    Dtype{"BOOL", at::kBool},
};

/// Place in kDtypes, or its size.
template <class Matches>
size_t find_dtype(const Matches& matches) {
  return std::find_if(kDtypes.begin(), kDtypes.end(), matches) - kDtypes.begin();
}

std::string dtype_names() {
  std::vector<std::string> names;
  for (const Dtype& dtype : kDtypes) names.emplace_back(dtype.name);
  return join(names);
}

// ---- writing

struct Piece {
  size_t dtype;  // in kDtypes
  const std::string* name;
  const at::Tensor* tensor;
};

/// The tensors in the order of the file, checked.
std::vector<Piece> lay_out(const NamedTensors& tensors) {
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : tensors) {
    const auto refuse = [&name = name](const std::string& why) {
      throw Error("tensor '" + name + "' cannot be written to a safetensors file: " + why);
    };
    if (name == kMetadataKey) refuse("the format keeps this name for itself");
    if (!tensor.defined()) refuse("it is not defined");
    if (tensor.layout() != at::kStrided || tensor.is_meta()) refuse("it is sparse or has no data");
    const at::ScalarType type = tensor.scalar_type();
    const size_t dtype = find_dtype([&](const Dtype& known) { return known.type == type; });
    if (dtype == kDtypes.size()) refuse(std::string("the format has no dtype ") + c10::toString(type));
    pieces.push_back({dtype, &name, &tensor});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.dtype != b.dtype ? a.dtype < b.dtype : *a.name < *b.name; });
  std::set<std::string_view> names;
  for (const Piece& piece : pieces) {
    if (!names.insert(*piece.name).second) throw Error("two tensors are called '" + *piece.name + "'");
  }
  return pieces;
}

std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error("'" + text + "' cannot be written to a safetensors file: it is not UTF-8");
  }
}

std::string header_of(const std::vector<Piece>& pieces, const FileMetadata& metadata) {
  std::string header = "{";
  const auto comma = [&] { return header.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    header += quoted(kMetadataKey) + ":{";
    for (const auto& [key, value] : metadata) header += comma() + quoted(key) + ":" + quoted(value);
    header += '}';
  }
  uint64_t offset = 0;
  for (const Piece& piece : pieces) {
    const json shape = piece.tensor->sizes().vec();
    const uint64_t end = offset + piece.tensor->numel() * piece.tensor->element_size();
    header += comma() + quoted(*piece.name) + ":{\"dtype\":\"" + std::string(kDtypes[piece.dtype].name) +
              "\",\"shape\":" + shape.dump() + ",\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(end) + "]}";
    offset = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMostHeaderBytes) throw Error("too many tensors, or too long names, for one safetensors file");
  return header;
}

// ---- reading

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataError(path + ": not a valid safetensors file: " + what);
}

/// What the header says, refusing what the format has no place for: other nesting, and a key twice.
json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    constexpr int kDeepest = 3;  // header > tensor > shape > number
    if (depth > kDeepest) throw DataError(path + ": not a valid safetensors file: its header is nested too deeply");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw DataError(path + ": not a valid safetensors file: '" + parsed.get<std::string>() +
                      "' is in its header twice");
    }
    return true;
  };
  try {
    if (!text.starts_with('{')) damaged(path, "its header does not begin with '{'");
    return json::parse(text, check);
  } catch (const json::exception& error) {
    damaged(path, std::string("its header is not JSON: ") + error.what());
  }
}

/// A list of non-negative integers.
std::vector<int64_t> integers(const json& list) {
  std::vector<int64_t> numbers;
  if (!list.is_array()) throw DataError("expected a list of integers");
  for (const json& number : list) {
    const bool fits = number.is_number_unsigned() && number.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
    if (!fits) throw DataError("expected integers from 0 to 2^63-1, found " + number.dump());
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

const json& member(const json& tensor, const char* key) {
  if (!tensor.is_object() || !tensor.contains(key)) throw DataError(std::string("it has no ") + key);
  return tensor[key];
}

/// Bytes of a tensor of this shape. Zeros count as ones where it is about overflow: strides leave them out, too.
uint64_t bytes_of(const std::vector<int64_t>& shape, at::ScalarType type) {
  int64_t extent = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) throw DataError("its shape is too large");
  }
  const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  return is_empty ? 0 : extent;
}

SafetensorsFile::Entry entry_of(const std::string& name, const json& tensor, uint64_t data_start) {
  const json& dtype_name = member(tensor, "dtype");
  const size_t dtype = find_dtype([&](const Dtype& known) { return dtype_name == known.name; });
  if (dtype == kDtypes.size()) {
    throw DataError("dtype " + dtype_name.dump() + " is not known here; known: " + dtype_names());
  }
  const at::ScalarType type = kDtypes[dtype].type;
  const std::vector<int64_t> shape = integers(member(tensor, "shape"));
  const std::vector<int64_t> range = integers(member(tensor, "data_offsets"));
  if (range.size() != 2 || range[0] > range[1]) throw DataError("its data_offsets are not [begin, end]");
  const uint64_t bytes = bytes_of(shape, type);
  const uint64_t given = static_cast<uint64_t>(range[1] - range[0]);
  if (bytes != given) {
    throw DataError("shape " + json(shape).dump() + " of " + std::string(kDtypes[dtype].name) + " takes " +
                    std::to_string(bytes) + " bytes, but its data_offsets span " + std::to_string(given));
  }
  return {name, type, shape, data_start + static_cast<uint64_t>(range[0]), bytes};
}

FileMetadata metadata_of(const std::string& path, const json& map) {
  FileMetadata metadata;
  for (const auto& [key, value] : map.items()) {
    if (!map.is_object() || !value.is_string()) damaged(path, "its __metadata__ is not a map of strings");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

void write_safetensors(FileWriter& file, const NamedTensors& tensors, const FileMetadata& metadata) {
  const std::vector<Piece> pieces = lay_out(tensors);
  const std::string header = header_of(pieces, metadata);
  const uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header);
  std::vector<std::string_view> lasting;
  for (const Piece& piece : pieces) {
    const at::Tensor data =
        piece.tensor->detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous(at::MemoryFormat::Contiguous);
    const std::string_view bytes(static_cast<const char*>(data.const_data_ptr()), data.nbytes());
    if (data.is_alias_of(*piece.tensor)) {
      lasting.push_back(bytes);
      continue;
    }
    file.write_lasting(std::exchange(lasting, {}));
    file.write(bytes);
  }
  file.write_lasting(lasting);
}

FileDigest write_safetensors(const std::string& path, const NamedTensors& tensors, const FileMetadata& metadata) {
  return write_file_atomically(path, [&](FileWriter& file) { write_safetensors(file, tensors, metadata); });
}

bool begins_as_safetensors(std::string_view bytes) {
  if (bytes.size() <= kLengthBytes || bytes[kLengthBytes] != '{') return false;
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  return length <= kMostHeaderBytes;
}

SafetensorsFile::SafetensorsFile(const std::string& path, FileReader::Hashing hashing) : file_(path, hashing) {
  if (file_.size() < kLengthBytes) damaged(path, "it has only " + std::to_string(file_.size()) + " bytes");
  uint64_t length = 0;
  file_.read(&length, kLengthBytes);
  if (length > kMostHeaderBytes || length > file_.size() - kLengthBytes) {
    damaged(path, "it has " + std::to_string(file_.size()) + " bytes, and its header is to have " +
                      std::to_string(length) + " of them");
  }
  std::string text(length, '\0');
  file_.read(text.data(), text.size());
  const uint64_t data_start = kLengthBytes + length;
  const json header = parse_header(path, text);
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      metadata_ = metadata_of(path, value);
      continue;
    }
    try {
      entries_.push_back(entry_of(name, value, data_start));
    } catch (const DataError& error) {
      damaged(path, "tensor '" + name + "': " + error.what());
    }
  }
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  uint64_t expected = data_start;
  for (const Entry& entry : entries_) {
    if (entry.offset != expected) {
      damaged(path, "tensor '" + entry.name + "' begins at byte " + std::to_string(entry.offset) +
                        " of the file, where " + std::to_string(expected) +
                        " was expected: tensors overlap or leave a gap");
    }
    expected += entry.bytes;
  }
  if (expected != file_.size()) {
    damaged(path,
            "by its header it has " + std::to_string(expected) + " bytes, in fact " + std::to_string(file_.size()));
  }
}

at::Tensor SafetensorsFile::read(const Entry& entry) {
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype).device(at::kCPU));
  file_.seek(entry.offset);
  file_.read(tensor.mutable_data_ptr(), entry.bytes);
  return tensor;
}

SafetensorsContent read_safetensors(const std::string& path, FileReader::Hashing hashing) {
  SafetensorsFile file(path, hashing);
  SafetensorsContent content;
  for (const SafetensorsFile::Entry& entry : file.entries()) content.tensors.emplace_back(entry.name, file.read(entry));
  content.metadata = file.metadata();
  if (hashing == FileReader::Hashing::kOn) content.digest = file.digest();
  return content;
}

}  // namespace trainrun
