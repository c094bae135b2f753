#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "registry/kinds/figures.h"
#include "runner/loggers/tensor_records.h"

namespace trainrun {

// The event files that TensorBoard reads: records framed as TFRecord has it, each a protobuf message `Event`
// (tensorboard/compat/proto/event.proto, summary.proto).

/// CRC-32C (Castagnoli) of `bytes`, RFC 3720, appendix B.4.
uint32_t crc32c(std::string_view bytes);
/// `message` in a TFRecord's frame: its length, and masked checksums of length and message.
std::string framed_record(std::string_view message);

/// What a file begins with: its format.
std::string version_event(double wall_time);
/// Tells readers that the run goes on after `step`: what came before, in files of before, too, of this step and of later
/// ones is hidden.
std::string restart_event(double wall_time, int64_t step);
/// Scalars, as float32, which is what TensorBoard shows.
std::string scalars_event(double wall_time, int64_t step, const Figures& figures);
/// A text in Markdown, for TensorBoard's page of texts.
std::string text_event(double wall_time, int64_t step, const std::string& name, const std::string& text);

/// Histograms, for the pages "Histograms" and "Distributions".
std::string histograms_event(double wall_time, const HistogramRecord& record);
/// Pictures, for the page "Images".
std::string pictures_event(double wall_time, const PicturesRecord& record);
/// A graph of layers, for the page "Graphs": TensorFlow's GraphDef.
std::string graph_event(double wall_time, const DrawnGraph& graph);

}  // namespace trainrun
