#include "runner/loggers/tfevents.h"

#include <protozero/pbf_writer.hpp>

#include <array>

#include "runner/loggers/tfevent_fields.h"

namespace trainrun {
namespace {

using tfevent::EventField;
using tfevent::tag;
using tfevent::ValueField;

// As in tfevent_fields.h, of what is only written.
enum class HistogramField : protozero::pbf_tag_type {
  kMin = 1,
  kMax = 2,
  kNum = 3,
  kSum = 4,
  kSumSquares = 5,
  kBucketLimit = 6,
  kBucket = 7,
};
enum class ImageField : protozero::pbf_tag_type { kHeight = 1, kWidth = 2, kColorspace = 3, kPng = 4 };
constexpr protozero::pbf_tag_type kNodeOfGraph = 1;
constexpr protozero::pbf_tag_type kVersionsOfGraph = 4;
constexpr protozero::pbf_tag_type kProducerOfVersions = 1;
constexpr int kProducer = 22;  // as torch.utils.tensorboard says
enum class NodeField : protozero::pbf_tag_type { kName = 1, kOp = 2, kInput = 3, kAttr = 5 };
enum class MapField : protozero::pbf_tag_type { kKey = 1, kValue = 2 };
enum class AttrField : protozero::pbf_tag_type { kList = 1, kString = 2 };
constexpr protozero::pbf_tag_type kShapeOfList = 7;
constexpr protozero::pbf_tag_type kPluginDataOfMetadata = 1;
constexpr protozero::pbf_tag_type kNameOfPluginData = 1;
enum class TensorField : protozero::pbf_tag_type { kDtype = 1, kShape = 2, kStringVal = 8 };
constexpr int kStringDtype = 7;
constexpr protozero::pbf_tag_type kDimOfShape = 2;
constexpr protozero::pbf_tag_type kSizeOfDim = 1;

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kCastagnoliReflected = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoliReflected : 0);
    table[byte] = crc;
  }
  return table;
}

/// A checksum of what holds checksums is made unlike them.
uint32_t masked(uint32_t crc) {
  constexpr uint32_t kMaskDelta = 0xA282EAD8;
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

template <class Number>
void append_little_endian(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
}

std::string begin_event(double wall_time, int64_t step) {
  std::string message;
  protozero::pbf_writer event(message);
  event.add_double(tag(EventField::kWallTime), wall_time);
  event.add_int64(tag(EventField::kStep), step);
  return message;
}

/// A value of a summary for each of `all`, which `add` writes.
template <class Container, class Add>
std::string summary_event(double wall_time, int64_t step, const Container& all, const Add& add) {
  std::string message = begin_event(wall_time, step);
  protozero::pbf_writer event(message);
  protozero::pbf_writer summary(event, tag(EventField::kSummary));
  for (const auto& one : all) {
    protozero::pbf_writer value(summary, tfevent::kValueOfSummary);
    add(one, value);
  }
  summary.commit();
  return message;
}

/// `attr["_output_shapes"]`, which TensorBoard writes at the lines between nodes.
void add_shape(protozero::pbf_writer& node, const std::vector<int64_t>& lengths) {
  protozero::pbf_writer entry(node, tag(NodeField::kAttr));
  entry.add_string(tag(MapField::kKey), "_output_shapes");
  protozero::pbf_writer value(entry, tag(MapField::kValue));
  protozero::pbf_writer list(value, tag(AttrField::kList));
  protozero::pbf_writer shape(list, kShapeOfList);
  for (const int64_t length : lengths) protozero::pbf_writer(shape, kDimOfShape).add_int64(kSizeOfDim, length);
}

void add_attribute(protozero::pbf_writer& node, const std::string& key, const std::string& text) {
  protozero::pbf_writer entry(node, tag(NodeField::kAttr));
  entry.add_string(tag(MapField::kKey), key);
  protozero::pbf_writer(entry, tag(MapField::kValue)).add_bytes(tag(AttrField::kString), text);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string framed_record(std::string_view message) {
  std::string record;
  append_little_endian(record, static_cast<uint64_t>(message.size()));
  append_little_endian(record, masked(crc32c(record)));
  record += message;
  append_little_endian(record, masked(crc32c(message)));
  return record;
}

std::string version_event(double wall_time) {
  std::string message = begin_event(wall_time, 0);
  protozero::pbf_writer(message).add_string(tag(EventField::kFileVersion), "brain.Event:2");
  return message;
}

std::string restart_event(double wall_time, int64_t step) {
  std::string message = begin_event(wall_time, step);
  protozero::pbf_writer event(message);
  protozero::pbf_writer(event, tag(EventField::kSessionLog))
      .add_enum(tfevent::kStatusOfSessionLog, tfevent::kSessionStart);
  return message;
}

std::string scalars_event(double wall_time, int64_t step, const Figures& figures) {
  return summary_event(wall_time, step, figures, [](const auto& named, protozero::pbf_writer& value) {
    value.add_string(tag(ValueField::kTag), named.first);
    value.add_float(tag(ValueField::kSimpleValue), static_cast<float>(named.second));
  });
}

std::string histograms_event(double wall_time, const HistogramRecord& record) {
  const auto add = [](const Histogram& histogram, protozero::pbf_writer& value) {
    value.add_string(tag(ValueField::kTag), histogram.name);
    protozero::pbf_writer histo(value, tag(ValueField::kHisto));
    histo.add_double(tag(HistogramField::kMin), histogram.min);
    histo.add_double(tag(HistogramField::kMax), histogram.max);
    histo.add_double(tag(HistogramField::kNum), histogram.count);
    histo.add_double(tag(HistogramField::kSum), histogram.sum);
    histo.add_double(tag(HistogramField::kSumSquares), histogram.sum_of_squares);
    histo.add_packed_double(tag(HistogramField::kBucketLimit), histogram.limits.begin(), histogram.limits.end());
    histo.add_packed_double(tag(HistogramField::kBucket), histogram.counts.begin(), histogram.counts.end());
  };
  return summary_event(wall_time, record.step, record.histograms, add);
}

std::string pictures_event(double wall_time, const PicturesRecord& record) {
  const auto add = [](const LoggedPicture& picture, protozero::pbf_writer& value) {
    value.add_string(tag(ValueField::kTag), picture.name);
    protozero::pbf_writer image(value, tag(ValueField::kImage));
    image.add_int32(tag(ImageField::kHeight), static_cast<int32_t>(picture.height));
    image.add_int32(tag(ImageField::kWidth), static_cast<int32_t>(picture.width));
    image.add_int32(tag(ImageField::kColorspace), static_cast<int32_t>(picture.channels));
    image.add_bytes(tag(ImageField::kPng), picture.png);
  };
  return summary_event(wall_time, record.step, record.pictures, add);
}

std::string graph_event(double wall_time, const DrawnGraph& graph) {
  std::string definition;
  protozero::pbf_writer all(definition);
  for (const DrawnLayer& layer : graph.layers) {
    protozero::pbf_writer node(all, kNodeOfGraph);
    node.add_string(tag(NodeField::kName), layer.name);
    node.add_string(tag(NodeField::kOp), layer.type);
    for (const std::string& input : layer.inputs) node.add_string(tag(NodeField::kInput), input);
    for (const auto& [key, text] : layer.attributes) add_attribute(node, key, text);
    if (!layer.shape.empty()) add_shape(node, layer.shape);
  }
  protozero::pbf_writer(all, kVersionsOfGraph).add_int32(kProducerOfVersions, kProducer);
  std::string message = begin_event(wall_time, 0);
  protozero::pbf_writer(message).add_bytes(tag(EventField::kGraphDef), definition);
  return message;
}

std::string text_event(double wall_time, int64_t step, const std::string& name, const std::string& text) {
  std::string message = begin_event(wall_time, step);
  protozero::pbf_writer event(message);
  protozero::pbf_writer summary(event, tag(EventField::kSummary));
  protozero::pbf_writer value(summary, tfevent::kValueOfSummary);
  value.add_string(tag(ValueField::kTag), name);
  {
    protozero::pbf_writer tensor(value, tag(ValueField::kTensor));
    tensor.add_enum(tag(TensorField::kDtype), kStringDtype);
    {
      protozero::pbf_writer shape(tensor, tag(TensorField::kShape));
      protozero::pbf_writer(shape, kDimOfShape).add_int64(kSizeOfDim, 1);
    }
    tensor.add_bytes(tag(TensorField::kStringVal), text);
  }
  {
    protozero::pbf_writer metadata(value, tag(ValueField::kMetadata));
    protozero::pbf_writer(metadata, kPluginDataOfMetadata).add_string(kNameOfPluginData, "text");
  }
  value.commit();
  summary.commit();
  return message;
}

}  // namespace trainrun
