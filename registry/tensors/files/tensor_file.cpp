#include "registry/tensors/files/tensor_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "registry/formats/files/zip_file.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"

namespace trainrun {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kMostNpyHeaderBytes = uint64_t{1} << 20;

// --- NumPy's format. Source: numpy.lib.format, versions 1.0 to 3.0.

/// What the header of an .npy file says.
struct NpyHeader {
  at::ScalarType dtype = at::kFloat;
  int64_t element_size = 4;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<int64_t> shape;
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;
};

/// Reads the dict of the header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  void parse(NpyHeader& header) {
    expect('{');
    bool has_dtype = false, has_order = false, has_shape = false;
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        read_dtype(header), has_dtype = true;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean(), has_order = true;
      } else if (key == "shape") {
        header.shape = shape(), has_shape = true;
      } else {
        fail("'" + key + "' is unknown");
      }
      if (!accept(',') && !peek('}')) fail("expected ','");
    }
    if (!has_dtype || !has_order || !has_shape) fail("it lacks descr, fortran_order or shape");
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    throw DataError("the header of the .npy format makes no sense: " + what);
  }
  void skip_spaces() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n' || text_[place_] == '\t')) ++place_;
  }
  bool peek(char c) {
    skip_spaces();
    return place_ < text_.size() && text_[place_] == c;
  }
  bool accept(char c) {
    if (!peek(c)) return false;
    ++place_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }
  std::string string() {
    const char quote = peek('"') ? '"' : '\'';
    expect(quote);
    const size_t end = text_.find(quote, place_);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view inside = text_.substr(place_, end - place_);
    place_ = end + 1;
    return std::string(inside);
  }
  bool boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(place_).starts_with(word)) continue;
      place_ += word.size();
      return value;
    }
    fail("expected True or False");
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      const size_t begin = place_;
      while (place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9') ++place_;
      const auto size = parse_integer(text_.substr(begin, place_ - begin));
      if (!size) fail("a size is not a number");
      sizes.push_back(*size);
      if (!accept(',') && !peek(')')) fail("expected ','");
    }
    return sizes;
  }

  void read_dtype(NpyHeader& header) {
    if (peek('[')) throw DataError("holds records of several fields; save each as an array of its own");
    const std::string text = string();
    struct Dtype {
      std::string_view name;
      at::ScalarType type;
    };
    static constexpr std::array kDtypes = {
        Dtype{"f2", at::kHalf},        Dtype{"f4", at::kFloat},  Dtype{"f8", at::kDouble}, Dtype{"i1", at::kChar},
        Dtype{"i2", at::kShort},       Dtype{"i4", at::kInt},    Dtype{"i8", at::kLong},   Dtype{"u1", at::kByte},
        Dtype{"u2", at::kUInt16},      Dtype{"u4", at::kUInt32}, Dtype{"u8", at::kUInt64}, Dtype{"b1", at::kBool},
        Dtype{"c8", at::kComplexFloat}};
    const std::string_view name = text.empty() ? std::string_view() : std::string_view(text).substr(1);
    if (name.starts_with('O')) {
      throw DataError(
          "holds Python objects, which are not read; in Python: np.save(path, array.astype('float32')); of arrays with "
          "different lengths save np.concatenate(arrays) and their lengths, [len(a) for a in arrays], and name these "
          "in "
          "TensorFile's sequences");
    }
    const auto it =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& known) { return known.name == name; });
    if (it == kDtypes.end() || std::string_view("<>|=").find(text[0]) == std::string_view::npos) {
      throw DataError("holds numbers of type '" + text + "', which are not read; in Python: array.astype('float32')");
    }
    header.dtype = it->type;
    header.element_size = static_cast<int64_t>(c10::elementSize(it->type));
    header.big_endian = text[0] == '>';
  }

  std::string_view text_;
  size_t place_ = 0;
};

/// `start`: the beginning of the array's bytes, of which there are `bytes`.
NpyHeader parse_npy(std::string_view start, uint64_t bytes) {
  constexpr uint64_t kVersionPlace = 6;
  constexpr uint64_t kLengthPlace = 8;
  if (!start.starts_with(kMagic)) throw DataError("is not in the .npy format");
  const bool long_header = start.size() > kVersionPlace && start[kVersionPlace] > 1;
  const uint64_t header_start = kLengthPlace + (long_header ? 4 : 2);
  if (start.size() < header_start) throw DataError("ends within the header of the .npy format");
  const int version = static_cast<unsigned char>(start[kVersionPlace]);
  if (version < 1 || version > 3) throw DataError("is of version " + std::to_string(version) + " of the .npy format");
  uint32_t length = 0;
  std::memcpy(&length, start.data() + kLengthPlace, header_start - kLengthPlace);
  if (length > kMostNpyHeaderBytes || length > start.size() - header_start) {
    throw DataError("ends within the header of the .npy format");
  }
  NpyHeader header;
  HeaderParser(start.substr(header_start, length)).parse(header);
  header.data_offset = header_start + length;
  int64_t data_bytes = header.element_size;
  int64_t strides = 1;  // zeros count as ones where it is about overflow
  for (const int64_t size : header.shape) {
    const bool overflow = __builtin_mul_overflow(strides, std::max<int64_t>(size, 1), &strides) ||
                          __builtin_mul_overflow(data_bytes, size, &data_bytes);
    if (overflow) throw DataError("has a shape that is too large");
  }
  header.data_bytes = static_cast<uint64_t>(data_bytes);
  if (bytes - header.data_offset != header.data_bytes) {
    throw DataError("has " + std::to_string(bytes - header.data_offset) +
                    " bytes of data, but its shape and type need " + std::to_string(header.data_bytes));
  }
  return header;
}

/// Turns the data as they lie in the file into what they mean.
at::Tensor finish(const NpyHeader& header, at::Tensor tensor) {
  if (header.big_endian) {
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
    const int64_t size = header.dtype == at::kComplexFloat ? header.element_size / 2 : header.element_size;
    for (uint64_t i = 0; i < header.data_bytes; i += static_cast<uint64_t>(size)) {
      std::reverse(bytes + i, bytes + i + size);
    }
  }
  if (!header.fortran_order) return tensor.view(header.shape);
  const std::vector<int64_t> reversed(header.shape.rbegin(), header.shape.rend());
  return tensor.view(reversed)
      .permute([&] {
        std::vector<int64_t> dims;
        for (int64_t i = static_cast<int64_t>(reversed.size()) - 1; i >= 0; --i) dims.push_back(i);
        return dims;
      }())
      .contiguous();
}

/// Where a DataError does not name the file itself.
template <class Body>
auto naming(const std::string& path, const Body& body) {
  try {
    return body();
  } catch (const DataError& error) {
    const std::string text = error.what();
    throw DataError(text.starts_with(path) ? text : path + ": " + text);
  }
}

class NpyFile : public TensorFile {
 public:
  explicit NpyFile(const std::string& path) : path_(path), file_(path) {
    std::string start(std::min(file_.size(), kMostNpyHeaderBytes), '\0');
    file_.read(start.data(), start.size());
    header_ = naming(path, [&] { return parse_npy(start, file_.size()); });
    entries_ = {{"", header_.dtype, header_.shape}};
  }
  const std::vector<Entry>& entries() const override { return entries_; }
  at::Tensor read(size_t) override {
    at::Tensor tensor = at::empty({static_cast<int64_t>(header_.data_bytes) / header_.element_size}, header_.dtype);
    file_.seek(header_.data_offset);
    if (header_.data_bytes > 0) file_.read(tensor.mutable_data_ptr(), header_.data_bytes);
    return finish(header_, std::move(tensor));
  }

 private:
  std::string path_;
  FileReader file_;
  NpyHeader header_;
  std::vector<Entry> entries_;
};

class NpzFile : public TensorFile {
 public:
  explicit NpzFile(const std::string& path) : path_(path), zip_(naming(path, [&] { return ZipFile(path); })) {
    for (const ZipFile::Member& member : zip_.members()) {
      constexpr std::string_view kEnding = ".npy";
      if (member.name.ends_with('/')) continue;
      if (valid_utf8_length(member.name) < member.name.size()) {
        throw DataError(path + ": the name of an array is not UTF-8");
      }
      if (!member.name.ends_with(kEnding)) {
        throw DataError(path + ": is a zip archive, but not an .npz file: it holds '" + member.name + "'");
      }
      const NpyHeader header = naming(path + ": " + member.name, [&] {
        return parse_npy(zip_.read_start(member, kMostNpyHeaderBytes), member.bytes);
      });
      entries_.push_back({member.name.substr(0, member.name.size() - kEnding.size()), header.dtype, header.shape});
      members_.push_back(&member);
      headers_.push_back(header);
    }
  }
  const std::vector<Entry>& entries() const override { return entries_; }
  at::Tensor read(size_t index) override {
    const NpyHeader& header = headers_[index];
    const at::Tensor bytes = naming(path_, [&] { return zip_.read(*members_[index]); });
    at::Tensor tensor = at::empty({static_cast<int64_t>(header.data_bytes) / header.element_size}, header.dtype);
    if (header.data_bytes > 0) {  // copied: behind its header it does not lie aligned
      std::memcpy(tensor.mutable_data_ptr(), bytes.const_data_ptr<uint8_t>() + header.data_offset, header.data_bytes);
    }
    return finish(header, std::move(tensor));
  }

 private:
  std::string path_;
  ZipFile zip_;
  std::vector<const ZipFile::Member*> members_;
  std::vector<NpyHeader> headers_;
  std::vector<Entry> entries_;
};

class SafetensorsTensorFile : public TensorFile {
 public:
  explicit SafetensorsTensorFile(const std::string& path) : file_(path) {
    for (const SafetensorsFile::Entry& entry : file_.entries()) {
      entries_.push_back({entry.name, entry.dtype, entry.shape});
    }
  }
  const std::vector<Entry>& entries() const override { return entries_; }
  at::Tensor read(size_t index) override { return file_.read(file_.entries()[index]); }

 private:
  SafetensorsFile file_;
  std::vector<Entry> entries_;
};

}  // namespace

std::unique_ptr<TensorFile> open_tensor_file(const std::string& path) {
  std::string start;
  {
    FileReader file(path);
    start.resize(std::min<uint64_t>(file.size(), 16));
    file.read(start.data(), start.size());
  }
  if (begins_as_safetensors(start)) return std::make_unique<SafetensorsTensorFile>(path);
  if (start.starts_with(kMagic)) return std::make_unique<NpyFile>(path);
  if (begins_as_zip(start)) return std::make_unique<NpzFile>(path);
  constexpr size_t kHeaderStart = 8;
  if (start.size() > kHeaderStart && start[kHeaderStart] == '{') return std::make_unique<SafetensorsTensorFile>(path);
  throw DataError(path + ": expected a .safetensors, .npy or .npz file; it does not begin like one");
}

}  // namespace trainrun
