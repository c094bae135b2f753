#include "runner/loggers/events.h"

namespace trainrun {
namespace {

struct Teller {
  Logger& logger;
  void operator()(const RunInfo& info) const { logger.on_start(info); }
  void operator()(const ProgressRecord& record) const { logger.on_progress(record.step, record.loss); }
  void operator()(const StepRecord& record) const { logger.on_step(record); }
  void operator()(const EvaluationRecord& record) const { logger.on_evaluation(record); }
  void operator()(const CheckpointRecord& record) const { logger.on_checkpoint(record); }
  void operator()(const EndRecord& record) const { logger.on_end(record); }
  void operator()(const DrawnGraph& graph) const {
    if (auto* sink = dynamic_cast<TensorSink*>(&logger)) sink->on_graph(graph);
  }
  void operator()(const HistogramRecord& record) const {
    if (auto* sink = dynamic_cast<TensorSink*>(&logger)) sink->on_histograms(record);
  }
  void operator()(const PicturesRecord& record) const {
    if (auto* sink = dynamic_cast<TensorSink*>(&logger)) sink->on_pictures(record);
  }
};

}  // namespace

void tell(Logger& logger, const Event& event) { std::visit(Teller{logger}, event); }

}  // namespace trainrun
