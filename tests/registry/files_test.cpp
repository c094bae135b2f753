#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/json_depth.h"
#include "registry/formats/files/pickle.h"
#include "registry/formats/files/safetensors.h"
#include "registry/formats/files/tensor_file.h"
#include "registry/formats/files/torch_file.h"
#include "registry/language/error.h"
#include "tests/doctest.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

using test::contains;
using test::message_of;

constexpr std::array kDtypes = {at::kDouble,
                                at::kFloat,
                                at::kHalf,
                                at::kBFloat16,
                                at::kFloat8_e4m3fn,
                                at::kFloat8_e5m2,
                                at::kFloat8_e4m3fnuz,
                                at::kFloat8_e5m2fnuz,
                                at::kLong,
                                at::kInt,
                                at::kShort,
                                at::kChar,
                                at::kByte,
                                at::kBool,
                                at::kUInt16,
                                at::kUInt32,
                                at::kUInt64,
                                at::kComplexFloat,
                                at::kFloat8_e8m0fnu};

/// Zeros and ones for BOOL, else any bytes: 6 elements, [2, 3].
at::Tensor any_tensor(at::ScalarType type) {
  at::Tensor tensor = at::empty({2, 3}, type);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = type == at::kBool ? i % 2 : static_cast<uint8_t>(37 * i + 11);
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor data = tensor.contiguous();
  return {static_cast<const char*>(data.const_data_ptr()), data.nbytes()};
}

const at::Tensor& tensor_in(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [found, tensor] : tensors) {
    if (found == name) return tensor;
  }
  throw Error("no tensor " + name);
}

/// A safetensors file, header and data as given.
std::string raw_safetensors(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + data;
}

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

TEST_CASE("CSV quotes what RFC 4180 says") {
  CHECK(csv_record({"a", "b,c", "say \"so\"", "", "two\nlines"}) == "a,\"b,c\",\"say \"\"so\"\"\",,\"two\nlines\"\n");
}

TEST_CASE("JSON may be nested so deep and no deeper") {
  const auto fault = [](const std::string& text) {
    return message_of<DataError>([&] { check_json_depth(text, 2, "a.json"); });
  };
  for (const char* text : {"", "1", "[]", "[[], {}]", R"([{"[[[": "]\"[[["}])", "]]]] [[]]", R"(["[[[[[)", "[\"\\"}) {
    CHECK_NOTHROW(check_json_depth(text, 2, "a.json"));
  }
  for (const char* text : {"[[[", "[{\"a\": []}]", "[[1], [[]]]", R"([[], ["\\", [)", R"(["\"", [[)"}) {
    CHECK(fault(text) == "a.json: is nested too deeply: its lists and objects lie more than 2 deep in each other");
  }
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4 and of the NIST examples") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) hash.update(std::string(1000, 'a').data(), 1000);
  CHECK(hash.finish() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("a file writer's digest is that of the file, for pieces of every size") {
  const TemporaryFolder folder;
  std::string whole;
  FileWriter file(folder / "f");
  for (const size_t size : {size_t{1}, size_t{7}, size_t{1} << 19, size_t{1} << 20, size_t{3}, size_t{5} << 19}) {
    const std::string piece(size, static_cast<char>('a' + whole.size() % 26));
    file.write(piece);
    whole += piece;
  }
  const FileDigest digest = file.finish();
  CHECK(content_of(folder / "f") == whole);
  CHECK(digest == FileDigest{sha256(whole), static_cast<int64_t>(whole.size())});
  CHECK(digest_file(folder / "f") == digest);
}

TEST_CASE("a file that is not finished is removed, and an atomic write that fails leaves the old content") {
  const TemporaryFolder folder;
  {
    FileWriter(folder / "half").write("abc");
  }
  CHECK(!std::filesystem::exists(folder / "half"));

  write_file_atomically(folder / "f", "old");
  CHECK_THROWS_AS(write_file_atomically(folder / "f",
                                        [](FileWriter& file) {
                                          file.write("new");
                                          throw Error("the tensor is gone");
                                        }),
                  Error);
  CHECK(content_of(folder / "f") == "old");
  write_file_atomically(folder / "f", "new");
  CHECK(content_of(folder / "f") == "new");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a file system that refuses is an error that names path and reason") {
  const TemporaryFolder folder;
  write_content(folder / "file", "");
  const std::string below = folder / "file/x";
  CHECK(message_of<Error>([&] { write_file_atomically(below, "x"); }) ==
        folder / "file/.x.tmp-" + std::to_string(::getpid()) + ": cannot create: Not a directory");
  CHECK(message_of<Error>([&] { create_folders(below); }) == below + ": cannot create the folder: Not a directory");
  CHECK(message_of<Error>([&] { create_folders(folder / "file"); }) ==
        folder / "file: cannot create the folder: File exists");
  CHECK(message_of<Error>([&] { read_file(folder / "none", 1); }) ==
        folder / "none: cannot open: No such file or directory");
  CHECK(message_of<Error>([&] { read_file(folder.path(), 1); }) == folder.path() + ": expected a file, found a folder");
  std::filesystem::create_directories(folder / "full/of");
  CHECK(contains(message_of<Error>([&] { write_file_atomically(folder / "full", "x"); }), "Is a directory"));
}

TEST_CASE("folders are made with those above them, links replaced whatever they named") {
  const TemporaryFolder folder;
  CHECK(create_folders(folder / "a/b/c"));
  CHECK(!create_folders(folder / "a/b/c"));
  replace_link("nowhere", folder / "link");
  replace_link("a", folder / "link");
  CHECK(std::filesystem::read_symlink(folder / "link") == "a");
  CHECK(exchange_paths(folder / "a/b", folder / "link"));
  CHECK(std::filesystem::is_directory(folder / "link/c"));
}

TEST_CASE("tensors of every dtype come back from a safetensors file bit for bit") {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const at::ScalarType type : kDtypes) tensors.emplace_back(c10::toString(type), any_tensor(type));
  const FileDigest digest = write_safetensors(folder / "w", tensors);
  CHECK(digest_file(folder / "w") == digest);

  const SafetensorsContent content = read_safetensors(folder / "w", FileReader::Hashing::kOn);
  CHECK(content.digest == digest);
  CHECK(content.metadata == FileMetadata{{"format", "pt"}});
  REQUIRE(content.tensors.size() == tensors.size());
  for (const at::ScalarType type : kDtypes) {
    CAPTURE(c10::toString(type));
    const at::Tensor& expected = tensor_in(tensors, c10::toString(type));
    const at::Tensor& found = tensor_in(content.tensors, c10::toString(type));
    CHECK((found.scalar_type() == expected.scalar_type()));
    CHECK(found.sizes() == expected.sizes());
    CHECK(bytes_of(found) == bytes_of(expected));
  }
}

TEST_CASE("a safetensors file is laid out as the format says") {
  const TemporaryFolder folder;
  write_safetensors(
      folder / "w",
      {{"n", at::ones({2}, at::kByte)}, {"b", at::ones({1}, at::kShort)}, {"a", at::ones({1}, at::kShort)}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},)"
      R"("b":{"dtype":"I16","shape":[1],"data_offsets":[2,4]},"n":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(content_of(folder / "w") == raw_safetensors(padded, std::string("\1\0\1\0\1\1", 6)));
}

TEST_CASE("strides, views and the order of the tensors do not show in a safetensors file") {
  const TemporaryFolder folder;
  const at::Tensor image = at::arange(2 * 3 * 4 * 5).reshape({2, 3, 4, 5}).to(at::kFloat);
  const at::Tensor matrix = at::arange(12).reshape({3, 4});
  const NamedTensors plain = {{"image", image},
                              {"transposed", matrix.t().contiguous()},
                              {"column", matrix.select(1, 2).contiguous()},
                              {"expanded", at::ones({3, 4})},
                              {"number", at::scalar_tensor(3.5)},
                              {"empty", at::empty({0, 4})}};
  const NamedTensors strided = {{"empty", at::empty({4, 0}).t()},
                                {"number", at::scalar_tensor(3.5).requires_grad_()},
                                {"expanded", at::ones({1}).expand({3, 4})},
                                {"column", matrix.select(1, 2)},
                                {"transposed", matrix.t()},
                                {"image", image.contiguous(at::MemoryFormat::ChannelsLast)}};
  const FileDigest digest = write_safetensors(folder / "plain", plain);
  CHECK(write_safetensors(folder / "strided", strided) == digest);
  const SafetensorsContent content = read_safetensors(folder / "strided");
  CHECK(tensor_in(content.tensors, "image").equal(image));
  CHECK(tensor_in(content.tensors, "number").dim() == 0);
  CHECK(tensor_in(content.tensors, "empty").sizes() == at::IntArrayRef({0, 4}));
}

TEST_CASE("a file of no tensors, and names that need escapes, come back") {
  const TemporaryFolder folder;
  write_safetensors(folder / "none", {});
  CHECK(read_safetensors(folder / "none").tensors.empty());
  const std::string name = "é\"\\\n\x01/\x7f";
  write_safetensors(folder / "names", {{name, at::ones({1})}}, {{"a \"b\"", "c\\"}});
  CHECK(read_safetensors(folder / "names").tensors[0].first == name);
  CHECK(read_safetensors(folder / "names").metadata == FileMetadata{{"a \"b\"", "c\\"}});
}

TEST_CASE("what a safetensors file cannot hold is refused by name, and nothing is written") {
  const TemporaryFolder folder;
  const auto refusal = [&](const NamedTensors& tensors) {
    const std::string error = message_of<Error>([&] { write_safetensors(folder / "w", tensors); });
    CHECK(std::filesystem::is_empty(folder.path()));
    return error;
  };
  const at::Tensor one = at::ones({1});
  CHECK(contains(refusal({{"x", one.to(at::kComplexDouble)}}),
                 "tensor 'x' cannot be written to a safetensors file: the format "
                 "has no dtype ComplexDouble"));
  CHECK(contains(refusal({{"x", one.to(at::kMeta)}}), "tensor 'x'"));
  CHECK(contains(refusal({{"x", one.to_sparse()}}), "tensor 'x'"));
  CHECK(contains(refusal({{"x", at::Tensor()}}), "tensor 'x'"));
  CHECK(contains(refusal({{"__metadata__", one}}), "tensor '__metadata__'"));
  CHECK(refusal({{"x", one}, {"y", one}, {"x", one}}) == "two tensors are called 'x'");
  CHECK(contains(refusal({{"\xff", one}}), "not UTF-8"));
}

TEST_CASE("a damaged safetensors file is an error that names file and tensor") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& file) {
    write_content(folder / "w", file);
    const std::string error = message_of<Error>([&] { read_safetensors(folder / "w"); });
    CHECK(error.starts_with(folder / "w: "));
    return error;
  };
  const auto header = [&](const std::string& json) { return refusal(raw_safetensors(json, std::string(8, '\0'))); };
  const auto tensor = [&](const std::string& json) { return header("{\"x\":" + json + "}"); };

  CHECK(contains(refusal(""), "only 0 bytes"));
  CHECK(contains(refusal("1234567"), "only 7 bytes"));
  CHECK(contains(refusal(std::string(8, '\xff') + "{}"), "its header is to have 18446744073709551615"));
  CHECK(contains(refusal(std::string("\3\0\0\0\0\0\0\0{}", 10)), "its header is to have 3"));
  CHECK(contains(header(""), "does not begin with '{'"));
  CHECK(contains(header(" {}"), "does not begin with '{'"));
  CHECK(contains(header("{\"x\""), "not JSON"));
  CHECK(contains(header("{}{}"), "not JSON"));
  CHECK(contains(header("{\"\xff\":1}"), "not JSON"));
  CHECK(contains(header("{}"), "by its header it has 10 bytes, in fact 18"));
  CHECK(contains(header("{\"__metadata__\":{\"a\":1}}"), "not a map of strings"));
  CHECK(contains(header("{\"__metadata__\":[\"a\"]}"), "not a map of strings"));
  CHECK(contains(header("{\"x\":1,\"x\":1}"), "'x' is in its header twice"));
  CHECK(contains(header(std::string(2'000'000, '[')), "does not begin"));
  CHECK(contains(header("{\"a\":" + std::string(2'000'000, '[')), "nested too deeply"));
  CHECK(contains(tensor("1"), "tensor 'x': it has no dtype"));
  CHECK(contains(tensor("{}"), "tensor 'x': it has no dtype"));
  CHECK(contains(tensor(R"({"dtype":"F4","shape":[],"data_offsets":[0,8]})"), "tensor 'x': dtype \"F4\" is not known"));
  CHECK(contains(tensor(R"({"dtype":1,"shape":[],"data_offsets":[0,8]})"), "tensor 'x': dtype 1 is not known"));
  CHECK(contains(tensor(R"({"dtype":"F64","data_offsets":[0,8]})"), "tensor 'x': it has no shape"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[]})"), "tensor 'x': it has no data_offsets"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[-1],"data_offsets":[0,8]})"), "found -1"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[1.0],"data_offsets":[0,8]})"), "found 1.0"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":1,"data_offsets":[0,8]})"), "list of integers"));
  CHECK(
      contains(tensor(R"({"dtype":"F64","shape":[9223372036854775808],"data_offsets":[0,8]})"), "9223372036854775808"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), "too large"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})"), "too large"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[],"data_offsets":[8,0]})"), "not [begin, end]"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[],"data_offsets":[0,8,9]})"), "not [begin, end]"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"),
                 "tensor 'x': shape [2] of F64 takes 16 bytes, but its data_offsets span 8"));
  CHECK(contains(tensor(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})"), "in fact"));
  CHECK(contains(tensor(R"({"dtype":"F64","shape":[2],"data_offsets":[0,16]})"), "in fact"));
  CHECK(contains(tensor(R"({"dtype":"F32","shape":[],"data_offsets":[4,8]})"), "overlap or leave a gap"));
  CHECK(contains(header(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[2],)"
                        R"("data_offsets":[0,8]}})"),
                 "tensor 'y' begins at byte"));
}

TEST_CASE("a safetensors file cut short anywhere is an error, and no changed byte of its header does harm") {
  const TemporaryFolder folder;
  write_safetensors(folder / "w", {{"weight", at::ones({2, 3})}, {"bias", at::ones({3}, at::kHalf)}});
  const std::string whole = content_of(folder / "w");
  for (size_t size = 0; size < whole.size(); ++size) {
    write_content(folder / "w", whole.substr(0, size));
    CHECK_THROWS_AS(read_safetensors(folder / "w"), DataError);
  }
  const size_t data = 6 * 4 + 3 * 2;
  for (size_t i = 0; i < whole.size() - data; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      write_content(folder / "w", changed);
      size_t found = 0;
      try {
        found = read_safetensors(folder / "w").tensors.size();
      } catch (const DataError&) {
        continue;  // most are noticed; a changed name is still a valid file
      }
      CHECK(found <= 2);
    }
  }
}

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
  CHECK(contains(refusal(std::string(kMany, 'N') + "."), "more than 4 million values on top of each other"));
  CHECK(contains(refusal("N" + std::string(kMany, '\x94') + "."), "notes more than 4 million values"));
  CHECK(contains(refusal(std::string(kMany, '(') + "."), "begins more than 4 million groups"));
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
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ change);
      survives(changed);
    }
  }
}

TEST_CASE("a safetensors file may begin with any length, and name its tensors as it likes") {
  const TemporaryFolder folder;
  std::set<int> first_bytes;
  for (int length = 0; length < 256; length += 8) {  // headers are padded to 8 bytes
    write_safetensors(folder / "w", {{"w" + std::string(static_cast<size_t>(length), 'x'), at::ones({1})}});
    first_bytes.insert(static_cast<unsigned char>(read_file(folder / "w", size_t{1} << 20)[0]));
    CHECK(load_weights(folder / "w").size() == 1);
    CHECK(open_tensor_file(folder / "w")->entries().size() == 1);
  }
  CHECK(first_bytes.contains(0x80));                   // as a pickle begins
  for (size_t before = 100; before < 260; ++before) {  // the mark of a tar archive at its place
    write_safetensors(folder / "w", {{"ustar", at::ones({1})}}, {{"format", std::string(before, 'x')}});
    CHECK(load_weights(folder / "w").size() == 1);
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

/// For tests/parity/files_parity_test.py: reads the weights of each FILE that the list TRAINRUN_TEST_FILES names, and
/// writes them to FILE.safetensors, or the error to FILE.error.
TEST_CASE("helper: rewrites weights" * doctest::skip()) {
  std::ifstream list(std::getenv("TRAINRUN_TEST_FILES"));
  for (std::string path; std::getline(list, path);) {
    try {
      write_safetensors(path + ".safetensors", load_weights(path));
    } catch (const Error& error) {
      write_content(path + ".error", error.what());
    }
  }
}

}  // namespace trainrun
