#pragma once

#include <protozero/types.hpp>

// Numbers of fields and enumerators of the events that are both written and read again, from TensorBoard's .proto files.

namespace trainrun::tfevent {

enum class EventField : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kGraphDef = 4,
  kSummary = 5,
  kSessionLog = 7,
};
enum class ValueField : protozero::pbf_tag_type {
  kTag = 1,
  kSimpleValue = 2,
  kImage = 4,
  kHisto = 5,
  kTensor = 8,
  kMetadata = 9
};
inline constexpr protozero::pbf_tag_type kStatusOfSessionLog = 1;
inline constexpr int32_t kSessionStart = 1;
inline constexpr protozero::pbf_tag_type kValueOfSummary = 1;

template <class Field>
constexpr protozero::pbf_tag_type tag(Field field) {
  return static_cast<protozero::pbf_tag_type>(field);
}

}  // namespace trainrun::tfevent
