#include "runner/loggers/earlier_events.h"

#include <protozero/pbf_reader.hpp>

#include <optional>

#include "registry/formats/files/file_io.h"
#include "registry/language/error.h"
#include "runner/loggers/tfevent_fields.h"
#include "runner/loggers/tfevents.h"

namespace trainrun {
namespace {

using protozero::pbf_reader;

// Fields and how they are written.
constexpr uint32_t earlier_number(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::varint);
}
constexpr uint32_t earlier_bytes(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::length_delimited);
}
constexpr uint32_t kEarlierStep = earlier_number(tfevent::tag(tfevent::EventField::kStep));
constexpr uint32_t kEarlierSummary = earlier_bytes(tfevent::tag(tfevent::EventField::kSummary));
constexpr uint32_t kEarlierSession = earlier_bytes(tfevent::tag(tfevent::EventField::kSessionLog));
constexpr uint32_t kEarlierStatus = earlier_number(tfevent::kStatusOfSessionLog);
constexpr uint32_t kEarlierValue = earlier_bytes(tfevent::kValueOfSummary);
constexpr uint32_t kEarlierTag = earlier_bytes(tfevent::tag(tfevent::ValueField::kTag));
constexpr uint32_t kEarlierImage = earlier_bytes(tfevent::tag(tfevent::ValueField::kImage));

void read_first_value(pbf_reader summary, EarlierEvent& event) {
  while (summary.next()) {
    if (summary.tag_and_type() != kEarlierValue) {
      summary.skip();
      continue;
    }
    pbf_reader value = summary.get_message();
    while (value.next()) {
      if (value.tag_and_type() == kEarlierTag) {
        event.tag = value.get_string();
      } else {
        event.has_picture = event.has_picture || value.tag_and_type() == kEarlierImage;
        value.skip();
      }
    }
    return;
  }
}

bool says_start(pbf_reader session) {
  bool is_start = false;
  while (session.next()) {
    if (session.tag_and_type() == kEarlierStatus) {
      is_start = session.get_enum() == tfevent::kSessionStart;
    } else {
      session.skip();
    }
  }
  return is_start;
}

/// The records of a file, as TFRecord frames them: `framed_record`.
class Records {
 public:
  explicit Records(const std::string& path) : reader_(path), left_(reader_.size()) {}

  /// Nothing at the end, or where a record is not whole.
  std::optional<std::string> next() {
    constexpr size_t kHead = 12, kTail = 4;  // the length and its checksum; the message's checksum
    if (left_ < kHead + kTail) return std::nullopt;
    std::string record(kHead, '\0');
    reader_.read(record.data(), kHead);
    left_ -= kHead;
    uint64_t length = 0;
    for (size_t i = sizeof length; i-- > 0;) length = length << 8 | static_cast<uint8_t>(record[i]);
    if (length > left_ - kTail) return std::nullopt;
    record.resize(kHead + length + kTail);
    reader_.read(record.data() + kHead, length + kTail);
    left_ -= length + kTail;
    std::string message = record.substr(kHead, length);
    if (framed_record(message) != record) return std::nullopt;
    return message;
  }

 private:
  FileReader reader_;
  uint64_t left_;
};

}  // namespace

EarlierEvent read_event(std::string_view message) {
  EarlierEvent event;
  pbf_reader reader(message.data(), message.size());
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case kEarlierStep:
        event.step = reader.get_int64();
        break;
      case kEarlierSummary:
        read_first_value(reader.get_message(), event);
        break;
      case kEarlierSession:
        event.is_restart = says_start(reader.get_message());
        break;
      default:
        reader.skip();
    }
  }
  return event;
}

namespace {

EarlierEvent read_event_of(const std::string& path, std::string_view message) {
  try {
    return read_event(message);
  } catch (const protozero::exception&) {  // the record is whole, so another program wrote it
    throw DataError(path + ": has a record that is no event of TensorBoard's");
  }
}

}  // namespace

std::vector<std::string> shown_events(const std::vector<std::string>& paths, int64_t step) {
  std::vector<std::string> shown;
  for (const std::string& path : paths) {
    Records records(path);
    while (std::optional<std::string> message = records.next()) {
      const EarlierEvent event = read_event_of(path, *message);
      if (event.is_restart && event.step <= step) shown.clear();
      if (event.step == step && !event.tag.empty()) shown.push_back(std::move(*message));
    }
  }
  return shown;
}

}  // namespace trainrun
