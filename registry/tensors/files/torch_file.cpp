#include "registry/tensors/files/torch_file.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <string_view>

#include "registry/formats/files/zip_file.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"
#include "registry/language/text_forms.h"
#include "registry/tensors/files/pickle.h"

namespace trainrun {
namespace {

using PickleKind = Pickle::Kind;
using Node = Pickle::Node;

constexpr uint64_t kMostPickleBytes = uint64_t{64} << 20;  // more than 200,000 tensors
constexpr const char* kConvert =
    "in Python: sd = torch.load(path, map_location='cpu'); torch.save(sd, new_path), or safetensors.torch.save_file";

constexpr const char* kSubclass = "torch._tensor._rebuild_from_type_v2";  // a tensor with Python attributes

/// What torch.save calls a storage's dtype, and the names of dtypes themselves.
std::optional<at::ScalarType> dtype_named(std::string_view global) {
  static const std::map<std::string_view, at::ScalarType> dtypes = {
      {"torch.FloatStorage", at::kFloat},
      {"torch.DoubleStorage", at::kDouble},
      {"torch.HalfStorage", at::kHalf},
      {"torch.BFloat16Storage", at::kBFloat16},
      {"torch.LongStorage", at::kLong},
      {"torch.IntStorage", at::kInt},
      {"torch.ShortStorage", at::kShort},
      {"torch.CharStorage", at::kChar},
      {"torch.ByteStorage", at::kByte},
      {"torch.BoolStorage", at::kBool},
      {"torch.ComplexFloatStorage", at::kComplexFloat},
      {"torch.ComplexDoubleStorage", at::kComplexDouble},
      {"torch.UntypedStorage", at::kByte},
      {"torch.storage.UntypedStorage", at::kByte},
      {"torch.float32", at::kFloat},
      {"torch.float64", at::kDouble},
      {"torch.float16", at::kHalf},
      {"torch.bfloat16", at::kBFloat16},
      {"torch.int64", at::kLong},
      {"torch.int32", at::kInt},
      {"torch.int16", at::kShort},
      {"torch.int8", at::kChar},
      {"torch.uint8", at::kByte},
      {"torch.bool", at::kBool},
      {"torch.uint16", at::kUInt16},
      {"torch.uint32", at::kUInt32},
      {"torch.uint64", at::kUInt64},
      {"torch.complex64", at::kComplexFloat},
      {"torch.complex128", at::kComplexDouble},
      {"torch.float8_e4m3fn", at::kFloat8_e4m3fn},
      {"torch.float8_e5m2", at::kFloat8_e5m2},
      {"torch.float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
      {"torch.float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
      {"torch.float8_e8m0fnu", at::kFloat8_e8m0fnu},
  };
  const auto found = dtypes.find(global);
  return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

/// Bytes from the start of the storage to the end of the furthest element, or nothing where that overflows.
std::optional<uint64_t> reach(int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                              int64_t element_size) {
  int64_t last = offset;
  int64_t numel = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(numel, std::max<int64_t>(sizes[i], 1), &numel)) return std::nullopt;
    if (__builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &step)) return std::nullopt;
    if (__builtin_add_overflow(last, step, &last)) return std::nullopt;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel, element_size, &bytes)) return std::nullopt;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element_size, &bytes)) return std::nullopt;
  const bool is_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  return is_empty ? 0 : bytes;
}

/// The archive of one torch.save, its pickle parsed.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path) : zip_(path) {
    if (!zip_.members().empty()) {
      const std::string& first = zip_.members()[0].name;
      folder_ = first.substr(0, first.find('/') + 1);
    }
    if (!record("data.pkl")) throw DataError("it is a zip archive, but was not written by torch.save");
    if (record("constants.pkl")) {
      throw DataError(
          "it is a TorchScript archive; save its state dict instead: torch.save(module.state_dict(), path)");
    }
    if (record("byteorder") && text_of("byteorder") != "little") throw DataError("it is big-endian");
    pickle_ = parse_pickle(text_of("data.pkl"));
  }

  NamedTensors state_dict(const std::string& key) {
    const Node& dict = find_state_dict(key);
    NamedTensors tensors;
    for (const auto& [name, value] : dict.entries) {
      const std::string& text = pickle_[name].text;
      if (is_extra_state(name, value)) continue;
      try {
        tensors.emplace_back(text, tensor_of(pickle_[value]));
      } catch (const DataError& error) {
        throw DataError("tensor '" + text + "': " + error.what());
      }
    }
    return tensors;
  }

 private:
  // ---- finding the state dict
  bool is_dict(const Node& node) const {
    return node.kind == PickleKind::kDict || pickle_.callee(node) == "collections.OrderedDict";
  }

  bool is_tensor(const Node& node) const {
    const std::string function = pickle_.callee(node);
    return function.starts_with("torch._utils._rebuild_") || function == kSubclass;
  }

  /// Module.get_extra_state may put anything into a state dict; it is no tensor of the model's.
  bool is_extra_state(Pickle::Id name, Pickle::Id value) const {
    return pickle_[name].text.ends_with("_extra_state") && !is_tensor(pickle_[value]);
  }

  bool is_state_dict(const Node& node) const {
    return is_dict(node) && std::all_of(node.entries.begin(), node.entries.end(), [&](const auto& entry) {
             const bool named = pickle_[entry.first].kind == PickleKind::kString;
             return named && (is_tensor(pickle_[entry.second]) || is_extra_state(entry.first, entry.second));
           });
  }

  /// "epoch (an integer), model (a dict)"
  std::string contents(const Node& dict) const {
    constexpr size_t kMostListed = 20;
    std::vector<std::string> words;
    for (const auto& [name, value] : dict.entries) {
      const Node& key = pickle_[name];
      words.push_back((key.kind == PickleKind::kString ? key.text : pickle_.describe(key)) + " (" +
                      pickle_.describe(pickle_[value]) + ")");
    }
    return words.empty() ? "nothing" : join_first(words, kMostListed, LeftOut::kCount);
  }

  const Node& find_state_dict(const std::string& key) const {
    const Node& root = pickle_[pickle_.root];
    if (!is_dict(root)) {
      throw DataError(
          "expected a state dict, found " + pickle_.describe(root) +
          (root.kind == PickleKind::kCall ? ", a whole Python object, which only its own program can read" : "") +
          "; in Python: torch.save(model.state_dict(), path)");
    }
    if (!key.empty()) {
      const Node* chosen = pickle_.find(root, key);
      if (chosen && is_state_dict(*chosen)) return *chosen;
      throw DataError("no state dict under '" + key +
                      "'; it holds: " + contents(chosen && is_dict(*chosen) ? *chosen : root));
    }
    for (const char* usual : {"state_dict", "model", "model_state_dict"}) {
      const Node* chosen = pickle_.find(root, usual);
      if (chosen && is_state_dict(*chosen)) return *chosen;
    }
    if (is_state_dict(root)) return root;
    throw DataError("expected a state dict, or one under state_dict, model or model_state_dict; it holds: " +
                    contents(root));
  }

  // ---- rebuilding tensors
  const Node& argument(const Node& tuple, size_t index, PickleKind kind) const {
    if (tuple.kind != PickleKind::kTuple || index >= tuple.items.size()) throw DataError("an argument is missing");
    const Node& node = pickle_[tuple.items[index]];
    if (node.kind != kind) throw DataError("an argument is " + pickle_.describe(node));
    return node;
  }

  std::vector<int64_t> sizes_of(const Node& tuple) const {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < tuple.items.size(); ++i) {
      sizes.push_back(argument(tuple, i, PickleKind::kInteger).integer);
      if (sizes.back() < 0) throw DataError("a size or stride is negative");
    }
    return sizes;
  }

  /// Follows what Python calls to rebuild a tensor down to `_rebuild_tensor_v2` or `_v3`.
  at::Tensor tensor_of(const Node& call) {
    std::string function = pickle_.callee(call);
    const Node* arguments = &pickle_[call.items[1]];
    constexpr int kDeepest = 4;
    for (int depth = 0; depth < kDeepest; ++depth) {
      if (function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor_v3") {
        return rebuild(*arguments, function.back() == '3');
      }
      if (function == "torch._utils._rebuild_parameter" || function == "torch._utils._rebuild_parameter_with_state") {
        const Node& inner = argument(*arguments, 0, PickleKind::kCall);
        function = pickle_.callee(inner);
        arguments = &pickle_[inner.items[1]];
      } else if (function == kSubclass) {
        function = argument(*arguments, 0, PickleKind::kGlobal).text;
        arguments = &argument(*arguments, 2, PickleKind::kTuple);
      } else {
        break;
      }
    }
    throw DataError("it is of a kind that is not read here (" + (function.empty() ? "unnamed" : function) +
                    "); dense tensors are: tensor.to_dense(), tensor.dequantize()");
  }

  at::Tensor rebuild(const Node& arguments, bool has_dtype) {
    const Node& storage_id = pickle_[argument(arguments, 0, PickleKind::kPersistent).items[0]];
    if (argument(storage_id, 0, PickleKind::kString).text != "storage") throw DataError("it does not lie in a storage");
    const std::string& dtype_name =
        argument(has_dtype ? arguments : storage_id, has_dtype ? 6 : 1, PickleKind::kGlobal).text;
    const std::optional<at::ScalarType> dtype = dtype_named(dtype_name);
    if (!dtype) throw DataError("dtype " + dtype_name + " is not known here");
    const int64_t offset = argument(arguments, 1, PickleKind::kInteger).integer;
    const std::vector<int64_t> sizes = sizes_of(argument(arguments, 2, PickleKind::kTuple));
    const std::vector<int64_t> strides = sizes_of(argument(arguments, 3, PickleKind::kTuple));
    if (offset < 0 || sizes.size() != strides.size()) throw DataError("its offset or strides make no sense");
    refuse_lazy_views(arguments, has_dtype ? 7 : 6);
    const at::Storage& storage = storage_named(argument(storage_id, 2, PickleKind::kString).text);
    const auto bytes = reach(offset, sizes, strides, static_cast<int64_t>(c10::elementSize(*dtype)));
    if (!bytes || *bytes > storage.nbytes()) {
      throw DataError("it reaches beyond its storage, which has " + std::to_string(storage.nbytes()) + " bytes");
    }
    return at::empty({0}, at::TensorOptions().dtype(*dtype).device(at::kCPU)).set_(storage, offset, sizes, strides);
  }

  /// A tensor may be stored as "the conjugate (or negative) of what lies there"; the flags are in the metadata.
  void refuse_lazy_views(const Node& arguments, size_t index) const {
    if (index >= arguments.items.size()) return;
    const Node& metadata = pickle_[arguments.items[index]];
    if (!metadata.entries.empty())
      throw DataError("it is a conjugate or negative view; save tensor.resolve_conj().resolve_neg()");
  }

  // ---- records of the archive
  const ZipFile::Member* record(const std::string& name) const { return zip_.find(folder_ + name); }

  std::string text_of(const std::string& name) {
    const ZipFile::Member& member = *record(name);
    if (member.bytes > kMostPickleBytes) {
      throw DataError("record " + name + " has " + std::to_string(member.bytes) + " bytes; too long");
    }
    const at::Tensor bytes = zip_.read(member);
    return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
  }

  const at::Storage& storage_named(const std::string& key) {
    const auto found = storages_.find(key);
    if (found != storages_.end()) return found->second;
    const ZipFile::Member* member = record("data/" + key);
    if (!member) throw DataError("its storage, record data/" + key + ", is not in the file");
    return storages_.emplace(key, zip_.read(*member).storage()).first->second;
  }

  ZipFile zip_;
  std::string folder_;  // that all records lie in: "archive/"
  Pickle pickle_;
  std::map<std::string, at::Storage> storages_;
};

/// What a file begins with, for a message: printable characters as they are.
std::string begins(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += "\\x" + hex_number(byte, 2);
    }
  }
  return text;
}

std::string first_bytes(const std::string& path) {
  constexpr uint64_t kLookedAt = 512;
  FileReader file(path);
  std::string bytes(std::min(file.size(), kLookedAt), '\0');
  file.read(bytes.data(), bytes.size());
  return bytes;
}

/// Formats that PyTorch wrote before 1.6 (2020), or writes when told to: a bare pickle, or a tar archive. Not for files
/// that begin as those of today do: a number, or a name, in one may be what marks an old one.
void refuse_legacy(const std::string& path, std::string_view bytes) {
  constexpr size_t kTarMagic = 257;
  if (bytes.starts_with('\x80') || (bytes.size() > kTarMagic && bytes.substr(kTarMagic).starts_with("ustar"))) {
    throw DataError(path + ": is in the format that torch.save had before PyTorch 1.6; write it anew, " + kConvert);
  }
}

}  // namespace

NamedTensors read_torch_file(const std::string& path, const std::string& key) {
  const std::string bytes = first_bytes(path);
  if (!begins_as_zip(bytes)) {
    refuse_legacy(path, bytes);
    throw DataError(path + ": is not a file of torch.save: it begins with '" + begins(bytes) + "'");
  }
  try {
    return TorchFile(path).state_dict(key);
  } catch (const c10::Error& error) {
    throw DataError(path + ": is damaged, or was not written by torch.save: " + error.what_without_backtrace());
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

NamedTensors load_weights(const std::string& path, const std::string& key) {
  const std::string bytes = first_bytes(path);
  if (begins_as_safetensors(bytes)) return read_safetensors(path).tensors;
  if (begins_as_zip(bytes)) return read_torch_file(path, key);
  refuse_legacy(path, bytes);
  constexpr size_t kHeaderStart = 8;
  if (bytes.size() > kHeaderStart && bytes[kHeaderStart] == '{') return read_safetensors(path).tensors;
  if (bytes.starts_with("version https://git-lfs")) {
    throw DataError(path + ": is a pointer of Git LFS, not the file itself; fetch it with `git lfs pull`");
  }
  throw DataError(path + ": expected a safetensors file or a state dict of torch.save; it begins with '" +
                  begins(bytes) + "'");
}

}  // namespace trainrun
