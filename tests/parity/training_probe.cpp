#include "tests/parity/training_probe.h"

#include "runner/model/recipe_loader.h"
#include "runner/train/job.h"
#include "runner/train/train_loop.h"
#include "tests/parity/imagined_gpu.h"

namespace trainrun {

namespace {

std::vector<int64_t> waits;

class WaitsLogger : public Logger {
 public:
  bool is_told_at_once() const override { return true; }
  void on_progress(int64_t, double) override { waits.push_back(waits_for_gpu()); }
  void on_step(const StepRecord&) override { waits.back() = waits_for_gpu(); }  // the line itself reads, too
};

struct GpuWaits {
  static void describe(Fields<GpuWaits>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs&) const { return std::make_unique<WaitsLogger>(); }
};

}  // namespace

nlohmann::json train_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                            NamedTensors& state, const std::string& device) {
  waits.clear();
  catalog.loggers.add<GpuWaits>("GpuWaits", "counts how often the host waits for the imagined GPU");
  const LoadedRecipe loaded = load_recipe(path, overrides, catalog);
  Job::Options options;
  options.quiet = true;
  if (!device.empty()) options.device = at::Device(device);
  Job job(loaded, options);
  const int signal = train(job);
  for (const auto& [name, tensor] : job.model->state_dict()) state.emplace_back(name, tensor.detach().cpu().clone());
  return {{"steps", job.progress.step}, {"signal", signal}, {"waits", waits}, {"bytes_sent", bytes_sent_to_gpu()}};
}

}  // namespace trainrun
