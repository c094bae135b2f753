#include "registry/tensors/files/safetensors.h"

#include <ATen/ATen.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "registry/tensors/files/tensor_file.h"
#include "registry/tensors/files/torch_file.h"
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

/// A safetensors file, header and data as given.
std::string raw_safetensors(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + data;
}

}  // namespace

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

}  // namespace trainrun
