#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

#include <iterator>

#include "runner/interop/onnx_model.h"

// The messages of ONNX's onnx.proto, version 1.23: numbers of fields and enumerators are its.

namespace trainrun {
namespace {

using protozero::pbf_writer;

constexpr int64_t kOpset = 28;
constexpr int64_t kIrVersion = 14;
constexpr uint64_t kMostInline = 1'900'000'000;  // bytes: a protobuf message may have 2^31 - 1
constexpr uint64_t kLeastExternal = 1024;
constexpr uint64_t kAlignment = 4096;  // of tensors in the second file, so that it can be mapped

void add_metadata(pbf_writer& to, protozero::pbf_tag_type tag, const std::string& key, const std::string& value) {
  pbf_writer entry(to, tag);
  entry.add_string(1, key);
  entry.add_string(2, value);
}

void add_attribute(pbf_writer& node, const std::string& name, const OnnxAttribute& value) {
  pbf_writer attribute(node, 5);
  attribute.add_string(1, name);
  constexpr protozero::pbf_tag_type kType = 20;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    attribute.add_int64(3, *number);
    attribute.add_enum(kType, 2);
  } else if (const auto* real = std::get_if<double>(&value)) {
    attribute.add_float(2, static_cast<float>(*real));
    attribute.add_enum(kType, 1);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    attribute.add_bytes(4, *text);
    attribute.add_enum(kType, 3);
  } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t item : *numbers) attribute.add_int64(8, item);
    attribute.add_enum(kType, 7);
  } else {
    for (const std::string& item : std::get<std::vector<std::string>>(value)) attribute.add_bytes(9, item);
    attribute.add_enum(kType, 8);
  }
}

void add_node(pbf_writer& graph, const OnnxNode& node) {
  pbf_writer message(graph, 1);
  size_t num_inputs = node.inputs.size();
  while (num_inputs > 0 && node.inputs[num_inputs - 1].name.empty()) --num_inputs;  // optional ones at the end
  for (size_t i = 0; i < num_inputs; ++i) message.add_string(1, node.inputs[i].name);
  for (const OnnxValue& output : node.outputs) message.add_string(2, output.name);
  message.add_string(3, node.name);
  message.add_string(4, node.type);
  for (const auto& [name, value] : node.attributes) add_attribute(message, name, value);
}

/// ValueInfoProto.
void add_value(pbf_writer& graph, protozero::pbf_tag_type tag, const OnnxTensor& tensor) {
  pbf_writer value(graph, tag);
  value.add_string(1, tensor.name);
  pbf_writer type(value, 2);
  pbf_writer of_tensor(type, 1);
  of_tensor.add_enum(1, static_cast<int32_t>(onnx_type(tensor.dtype)));
  std::string shape;  // a writer within a writer leaves out an empty message, which is a scalar, or an open size
  pbf_writer sizes(shape);
  for (const OnnxSize& size : tensor.shape) {
    std::string dimension;
    const auto* name = std::get_if<std::string>(&size);
    if (!name) {
      pbf_writer(dimension).add_int64(1, std::get<int64_t>(size));
    } else if (!name->empty()) {
      pbf_writer(dimension).add_string(2, *name);
    }
    sizes.add_message(1, dimension);
  }
  of_tensor.add_message(2, shape);
}

/// The beginning of a message of `length` bytes that is field `tag` of another.
std::string field_head(uint32_t tag, uint64_t length) {
  std::string bytes;
  protozero::write_varint(std::back_inserter(bytes), (uint64_t{tag} << 3U) | 2U);
  protozero::write_varint(std::back_inserter(bytes), length);
  return bytes;
}

/// A tensor's TensorProto; what is not external, its numbers, follows it.
struct TensorPiece {
  std::string head;
  at::Tensor numbers;  // undefined if external
};

/// Where a tensor lies in the second file.
struct ExternalPlace {
  uint64_t offset;
  uint64_t length;
};

TensorPiece piece_of(const std::string& name, const at::Tensor& tensor, const ExternalPlace* place,
                     const std::string& file) {
  std::string message;
  pbf_writer writer(message);
  for (const int64_t size : tensor.sizes()) writer.add_int64(1, size);
  writer.add_enum(2, static_cast<int32_t>(onnx_type(tensor.scalar_type())));
  writer.add_string(8, name);
  if (place) {
    add_metadata(writer, 13, "location", file);
    add_metadata(writer, 13, "offset", std::to_string(place->offset));
    add_metadata(writer, 13, "length", std::to_string(place->length));
    writer.add_enum(14, 1);
    return {field_head(5, message.size()) + message, {}};
  }
  message += field_head(9, tensor.nbytes());
  return {field_head(5, message.size() + tensor.nbytes()) + message, tensor};
}

void write_numbers(FileWriter& file, const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.detach().to(at::kCPU).contiguous();
  file.write(numbers.const_data_ptr(), numbers.nbytes());
}

/// Places for the large ones of `tensors`; nothing for the others.
std::vector<std::optional<ExternalPlace>> places_of(const NamedTensors& tensors) {
  std::vector<std::optional<ExternalPlace>> places;
  uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t length = tensor.nbytes();
    if (length < kLeastExternal) {
      places.emplace_back();
      continue;
    }
    const uint64_t offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    places.push_back(ExternalPlace{offset, length});
    end = offset + length;
  }
  return places;
}

void write_external(const std::string& path, const NamedTensors& tensors,
                    const std::vector<std::optional<ExternalPlace>>& places) {
  write_file_atomically(path, [&](FileWriter& file) {
    uint64_t end = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!places[i]) continue;
      file.write(std::string(places[i]->offset - end, '\0'));
      write_numbers(file, tensors[i].second);
      end = places[i]->offset + places[i]->length;
    }
  });
}

/// GraphProto without its tensors.
std::string graph_bytes(const OnnxModel& model) {
  std::string bytes;
  pbf_writer graph(bytes);
  for (const OnnxNode& node : model.graph.nodes()) add_node(graph, node);
  graph.add_string(2, model.name);
  for (const OnnxTensor& input : model.inputs) add_value(graph, 11, input);
  for (const OnnxTensor& output : model.outputs) add_value(graph, 12, output);
  return bytes;
}

/// ModelProto without its graph.
std::string model_bytes(const OnnxModel& model) {
  std::string bytes;
  pbf_writer writer(bytes);
  writer.add_int64(1, kIrVersion);
  writer.add_string(2, "trainrun");
  writer.add_string(3, TRAINRUN_VERSION);
  {
    pbf_writer opset(writer, 8);
    opset.add_string(1, "");
    opset.add_int64(2, kOpset);
  }
  for (const auto& [key, value] : model.metadata) add_metadata(writer, 14, key, value);
  return bytes;
}

}  // namespace

bool write_onnx(const std::string& path, const OnnxModel& model, bool external) {
  const NamedTensors tensors = model.graph.initializers();
  uint64_t total = 0;
  for (const auto& [name, tensor] : tensors) total += tensor.nbytes();
  const bool apart = external || total > kMostInline;
  const std::string data_path = path + ".data";
  std::vector<std::optional<ExternalPlace>> places(tensors.size());
  if (apart) {
    places = places_of(tensors);
    write_external(data_path, tensors, places);
  }
  const std::string graph = graph_bytes(model);
  const std::string data_name = data_path.substr(data_path.rfind('/') + 1);  // beside the file
  std::vector<TensorPiece> pieces;
  uint64_t length = graph.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pieces.push_back(piece_of(tensors[i].first, tensors[i].second, places[i] ? &*places[i] : nullptr, data_name));
    length += pieces.back().head.size() + (pieces.back().numbers.defined() ? pieces.back().numbers.nbytes() : 0);
  }
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(model_bytes(model));
    file.write(field_head(7, length));
    file.write(graph);
    for (const TensorPiece& piece : pieces) {
      file.write(piece.head);
      if (piece.numbers.defined()) write_numbers(file, piece.numbers);
    }
  });
  return apart;
}

}  // namespace trainrun
