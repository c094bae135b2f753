#include "registry/tensors/files/torch_file.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>

#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "registry/language/error.h"
#include "registry/tensors/files/pickle.h"
#include "registry/tensors/files/safetensors.h"
#include "registry/tensors/files/tensor_file.h"
#include "tests/doctest.h"
#include "tests/registry/tensors_support.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

using test::bytes_of;
using test::contains;
using test::message_of;
using test::tensor_in;

/// A file as torch.save makes it: `pickle` as its data.pkl, and storages "0", "1", ….
void write_torch_file(const std::string& path, const std::string& pickle, const std::vector<std::string>& storages) {
  caffe2::serialize::PyTorchStreamWriter writer(path);
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", 6);
  for (size_t i = 0; i < storages.size(); ++i) {
    writer.writeRecord("data/" + std::to_string(i), storages[i].data(), storages[i].size());
  }
  writer.writeEndOfFile();
}

// Pieces of pickles, protocol 2, written by hand from the description in CPython's pickletools.py.
constexpr const char* kStart = "\x80\x02";

std::string text(const std::string& value) {
  const auto size = static_cast<uint32_t>(value.size());
  return "X" + std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + value;
}
std::string number(int64_t value) {
  return std::string("\x8a\x08") + std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string numbers(const std::vector<int64_t>& values) {
  std::string pickle = "(";
  for (const int64_t value : values) pickle += number(value);
  return pickle + "t";
}
std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
std::string tensor(const std::string& storage, int64_t offset, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides, const std::string& dtype = "FloatStorage") {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + global("torch", dtype) +
         text(storage) + text("cpu") + number(4) + "tQ" + number(offset) + numbers(sizes) + numbers(strides) + "\x89" +
         global("collections", "OrderedDict") + ")RtR";
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string pickle = "}(";
  for (const auto& [key, value] : entries) pickle += text(key) + value;
  return pickle + "u";
}

/// The numbers 1, 2, 3, 4 as a storage holds them.
std::string four_floats() {
  constexpr std::array kValues = {1.0F, 2.0F, 3.0F, 4.0F};
  return {reinterpret_cast<const char*>(kValues.data()), sizeof(kValues)};
}

/// What reading this pickle, with one storage of four floats, says.
std::string error_of_pickle(const std::string& pickle) {
  const TemporaryFolder folder;
  write_torch_file(folder / "w.pt", pickle, {four_floats()});
  return message_of<Error>([&] { read_torch_file(folder / "w.pt"); });
}

}  // namespace

TEST_CASE("a state dict of torch.save is read with its strides, and what is shared is shared") {
  const TemporaryFolder folder;
  const std::string pickle = kStart +
                             dict({{"plain", tensor("0", 0, {2, 2}, {2, 1})},
                                   {"transposed", tensor("0", 0, {2, 2}, {1, 2})},
                                   {"slice", tensor("0", 1, {2}, {2})},
                                   {"number", tensor("0", 3, {}, {})},
                                   {"empty", tensor("0", 4, {0, 5}, {5, 1})},
                                   {"ints", tensor("0", 0, {4}, {1}, "IntStorage")}}) +
                             ".";
  write_torch_file(folder / "w", pickle, {four_floats()});
  const NamedTensors found = load_weights(folder / "w");
  REQUIRE(found.size() == 6);
  const at::Tensor expected = at::arange(1, 5).to(at::kFloat).reshape({2, 2});
  CHECK(tensor_in(found, "plain").equal(expected));
  CHECK(tensor_in(found, "transposed").equal(expected.t()));
  CHECK(tensor_in(found, "transposed").strides() == at::IntArrayRef({1, 2}));
  CHECK(tensor_in(found, "slice").equal(at::tensor({2.0F, 4.0F})));
  CHECK(tensor_in(found, "number").item<float>() == 4);
  CHECK(tensor_in(found, "empty").sizes() == at::IntArrayRef({0, 5}));
  CHECK(tensor_in(found, "ints")[0].item<int>() == 0x3f800000);
  CHECK(tensor_in(found, "plain").is_alias_of(tensor_in(found, "slice")));
}

TEST_CASE("a state dict is found under its usual names or a given one, else the keys are listed") {
  const TemporaryFolder folder;
  const std::string weights = dict({{"w", tensor("0", 0, {4}, {1})}});
  const std::string other = dict({{"v", tensor("0", 0, {2}, {1})}});
  const auto write = [&](const std::string& value) {
    write_torch_file(folder / "w", kStart + value + ".", {four_floats()});
  };
  for (const char* name : {"state_dict", "model", "model_state_dict"}) {
    write(dict({{"epoch", number(3)}, {name, weights}, {"ema", other}}));
    CHECK(load_weights(folder / "w")[0].first == "w");
    CHECK(load_weights(folder / "w", "ema")[0].first == "v");
  }
  write(dict({{"epoch", number(3)}, {"net", weights}, {"args", global("argparse", "Namespace") + ")R"}}));
  CHECK(message_of<Error>([&] { load_weights(folder / "w"); }) ==
        folder /
            "w: expected a state dict, or one under state_dict, model or model_state_dict; it holds: epoch (an "
            "integer), net (a dict), args (a argparse.Namespace)");
  CHECK(contains(message_of<Error>([&] { load_weights(folder / "w", "nett"); }),
                 "no state dict under 'nett'; it holds: epoch"));
  CHECK(load_weights(folder / "w", "net")[0].first == "w");
  write(dict({{"w", tensor("0", 0, {4}, {1})}, {"_extra_state", "N"}, {"a._extra_state", "}"}}));
  CHECK(load_weights(folder / "w").size() == 1);
  write("}");
  CHECK(load_weights(folder / "w").empty());
}

TEST_CASE("tensors that do not fit their storage, or are of no known kind, are refused by name") {
  const auto refusal = [](const std::string& value) { return error_of_pickle(kStart + dict({{"x", value}}) + "."); };
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::string beyond = "tensor 'x': it reaches beyond its storage, which has 16 bytes";
  CHECK(contains(refusal(tensor("0", 0, {5}, {1})), beyond));
  CHECK(contains(refusal(tensor("0", 1, {4}, {1})), beyond));
  CHECK(contains(refusal(tensor("0", 0, {2, 2}, {3, 1})), beyond));
  CHECK(contains(refusal(tensor("0", 0, {4}, {1}, "DoubleStorage")), beyond));
  CHECK(contains(refusal(tensor("0", 0, {kHuge}, {kHuge})), beyond));
  CHECK(contains(refusal(tensor("0", 0, {kHuge, kHuge}, {0, 0})), beyond));
  CHECK(contains(refusal(tensor("0", kHuge, {1}, {1})), beyond));
  CHECK(contains(refusal(tensor("0", -1, {1}, {1})), "tensor 'x': its offset"));
  CHECK(contains(refusal(tensor("0", 0, {-1}, {1})), "tensor 'x': a size or stride is negative"));
  CHECK(contains(refusal(tensor("0", 3, {2}, {-1})), "tensor 'x': a size or stride is negative"));
  CHECK(contains(refusal(tensor("0", 0, {1}, {1, 1})), "tensor 'x': its offset or strides"));
  CHECK(contains(refusal(tensor("7", 0, {1}, {1})), "tensor 'x': its storage, record data/7, is not in the file"));
  CHECK(
      contains(refusal(tensor("0", 0, {1}, {1}, "QInt8Storage")), "tensor 'x': dtype torch.QInt8Storage is not known"));
  CHECK(contains(refusal(global("torch._utils", "_rebuild_sparse_tensor") + ")R"),
                 "(torch._utils._rebuild_sparse_tensor)"));
  CHECK(contains(refusal(global("torch._utils", "_rebuild_tensor_v2") + ")R"), "tensor 'x': an argument is missing"));
  CHECK(contains(refusal(global("torch._utils", "_rebuild_tensor_v2") + "NR"), "tensor 'x': an argument is missing"));
  CHECK(contains(refusal(global("torch._utils", "_rebuild_parameter") + "(" + number(1) + "tR"),
                 "an argument is an integer"));
}

TEST_CASE("a pickle's calls are never made; a whole object is an error that says what to save instead") {
  const TemporaryFolder folder;
  const std::string call = global("os", "system") + "(" + text("touch " + folder / "run") + "tR";
  CHECK(contains(error_of_pickle(kStart + call + "."),
                 "expected a state dict, found a os.system, a whole Python object"));
  CHECK(contains(error_of_pickle(kStart + call + "."), "torch.save(model.state_dict(), path)"));
  write_torch_file(folder / "w",
                   kStart + dict({{"model", dict({{"w", tensor("0", 0, {4}, {1})}})}, {"hook", call}}) + ".",
                   {four_floats()});
  CHECK(load_weights(folder / "w").size() == 1);
  CHECK(!std::filesystem::exists(folder / "run"));
}

TEST_CASE("a pickle that makes no sense is an error that says where") {
  const auto refusal = [](const std::string& pickle) { return message_of<Error>([&] { parse_pickle(pickle); }); };
  CHECK(refusal("") == "byte 0 of the pickle: it ends too early");
  CHECK(refusal("\x80\x02N") == "byte 3 of the pickle: it ends too early");
  CHECK(contains(refusal("\x80\x06N."), "its protocol is 6"));
  CHECK(contains(refusal("."), "more values than there are"));
  CHECK(contains(refusal("t."), "a group that was not begun"));
  CHECK(contains(refusal("N(R."), "more values than there are"));
  CHECK(contains(refusal("N(0."), "more values than there are"));
  CHECK(contains(refusal("\x85."), "more values than there are"));
  CHECK(contains(refusal("NNs."), "more values than there are"));
  CHECK(contains(refusal("NNNs."), "not a dict"));
  CHECK(contains(refusal("}(Nu."), "a key without a value"));
  CHECK(contains(refusal("}Na."), "not a list"));
  CHECK(contains(refusal("h\x01."), "was not there before"));
  CHECK(contains(refusal("q\x01."), "more values than there are"));
  CHECK(contains(refusal("X\xff\xff\xff\xffz."), "ends too early"));
  CHECK(contains(refusal(std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xffz.")), "ends too early"));
  CHECK(contains(refusal("cos"), "ends too early"));
  CHECK(contains(refusal("NN\x93."), "not a string"));
  CHECK(contains(refusal("P1\n."), "opcode 80 is not known"));
  if (test::kIsSanitized) return;  // who would count to millions, one value at a time
  CHECK(contains(refusal(std::string(size_t{5} << 20, ']')), "4 million values"));
}

TEST_CASE("loops and deep nesting in a pickle do no harm") {
  const Pickle loop = parse_pickle("]q\x01h\x01" + std::string("a."));
  CHECK(loop[loop.root].items == std::vector<Pickle::Id>{loop.root});
  const Pickle deep = parse_pickle(")" + std::string(1'000'000, '\x85') + ".");
  CHECK(deep[deep.root].items.size() == 1);
  std::string doubling = "]";
  for (int i = 0; i < 60; ++i) doubling += "q\x01" + std::string("](h\x01h\x01") + "e";
  CHECK(parse_pickle(doubling + ".").nodes.size() < 100);
  CHECK(contains(error_of_pickle("}q\x01" + text("model") + "h\x01s."), "expected a state dict"));
}

TEST_CASE("a few bytes of a pickle, said again and again, do not take all memory") {
  constexpr size_t kMany = size_t{5} << 20;
  const auto refusal = [](const std::string& pickle) { return message_of<Error>([&] { parse_pickle(pickle); }); };
  if (!test::kIsSanitized) {  // who would count to millions, one value at a time
    CHECK(contains(refusal(std::string(kMany, 'N') + "."), "more than 4 million values on top of each other"));
    CHECK(contains(refusal("N" + std::string(kMany, '\x94') + "."), "notes more than 4 million values"));
    CHECK(contains(refusal(std::string(kMany, '(') + "."), "begins more than 4 million groups"));
  }
  const std::string name = std::string("X\0\0\x01\0", 5) + std::string(65536, 'a') + std::string("\x94", 1);
  std::string names = name;
  for (int i = 0; i < 2000; ++i) names += std::string("h\0h\0\x93", 5);  // each is as long as two of it
  CHECK(contains(refusal(names + "."), "take more than 64 MiB"));
}

TEST_CASE("numbers of every width in a pickle") {
  const auto integer = [](const std::string& bytes) {
    const Pickle pickle = parse_pickle(bytes + ".");
    CHECK(pickle[pickle.root].kind == Pickle::Kind::kInteger);
    return pickle[pickle.root].integer;
  };
  CHECK(integer("K\xff") == 255);
  CHECK(integer("M\xff\xff") == 65535);
  CHECK(integer("J\xff\xff\xff\xff") == -1);
  CHECK(integer(std::string("\x8a\x00", 2)) == 0);
  CHECK(integer("\x8a\x01\xff") == -1);
  CHECK(integer(std::string("\x8a\x02\xff\x00", 4)) == 255);
  CHECK(integer(std::string("\x8a\x03\x00\x00\x80", 5)) == -(int64_t{1} << 23));
  CHECK(integer("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") == std::numeric_limits<int64_t>::max());
  const Pickle large = parse_pickle(std::string("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", 12));
  CHECK(large.describe(large[large.root]) == "an integer of more than 64 bits");
  const Pickle half = parse_pickle(std::string("G\x3f\xe0\0\0\0\0\0\0.", 10));
  CHECK(half[half.root].number == 0.5);
}

TEST_CASE("a file of torch.save with any byte changed, or cut short anywhere, does no harm") {
  const TemporaryFolder folder;
  const std::string pickle =
      kStart + dict({{"model", dict({{"a", tensor("0", 0, {2, 2}, {2, 1})}, {"b", tensor("1", 1, {2}, {1})}})}}) + ".";
  write_torch_file(folder / "w", pickle, {four_floats(), four_floats()});
  const std::string whole = content_of(folder / "w");
  const auto survives = [&](const std::string& content) {
    write_content(folder / "w", content);
    try {
      for (const auto& [name, tensor] : read_torch_file(folder / "w")) bytes_of(tensor);
    } catch (const DataError& error) {
      CHECK(contains(error.what(), folder / "w"));
    }
  };
  for (size_t size = 0; size < whole.size(); ++size) survives(whole.substr(0, size));
  constexpr std::array kChanges = {0x01, 0x80, 0xff};
  for (size_t i = 0; i < whole.size(); ++i) {  // with one of them each; random changes: tests/parity/fuzz_test.py
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ kChanges[i % kChanges.size()]);
    survives(changed);
  }
}

TEST_CASE("weights are told apart by content, and what they are not is said") {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.pt", {{"w", at::ones({1})}});
  CHECK(load_weights(folder / "a.pt").size() == 1);
  write_torch_file(folder / "b.safetensors", kStart + dict({{"w", tensor("0", 0, {4}, {1})}}) + ".", {four_floats()});
  CHECK(load_weights(folder / "b.safetensors").size() == 1);
  const auto refusal = [&](const std::string& content) {
    write_content(folder / "w", content);
    return message_of<Error>([&] { load_weights(folder / "w"); });
  };
  CHECK(contains(refusal("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"), "before PyTorch 1.6"));
  CHECK(contains(refusal(std::string(257, 'x') + "ustar" + std::string(300, 'x')), "before PyTorch 1.6"));
  CHECK(contains(refusal("version https://git-lfs.github.com/spec/v1"), "git lfs pull"));
  CHECK(contains(refusal("\x89HDF\r\n\x1a\n"), "it begins with '\\x89HDF\\x0d\\x0a\\x1a\\x0a'"));
  CHECK(contains(refusal(""), "begins with ''"));
  CHECK(contains(message_of<Error>([&] { load_weights(folder.path()); }), "found a folder"));
  CHECK(contains(message_of<Error>([&] { load_weights(folder / "none"); }), "No such file"));
  caffe2::serialize::PyTorchStreamWriter script(folder / "script");
  script.writeRecord("data.pkl", "N.", 2);
  script.writeRecord("constants.pkl", "N.", 2);
  script.writeEndOfFile();
  CHECK(contains(message_of<Error>([&] { load_weights(folder / "script"); }), "TorchScript archive"));
}

}  // namespace trainrun
