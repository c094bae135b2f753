#include "runner/foresight/dry_run.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include "runner/train/train_step.h"

namespace trainrun {
namespace {

constexpr int64_t kBytesOfUnit = 1024;  // getrusage counts in kilobytes

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * kBytesOfUnit;
}

/// The rank's first batch, as the DataLoader will order it.
std::vector<int64_t> first_samples(const Job& job, int64_t rank) {
  const DataLoaderOptions options = loader_options(job.recipe, job.train_data.get(), true, rank, job.world_size());
  const Sampler sampler(job.train_data->size(),
                        {options.shuffle, options.seed, options.split, rank, options.world_size, options.drawing});
  const at::Tensor indices = sampler.indices(0).narrow(0, 0, job.train_loader->batch_size(0)).contiguous();
  const auto* numbers = indices.const_data_ptr<int64_t>();
  return {numbers, numbers + indices.numel()};
}

}  // namespace

DryRun dry_run(const LoadedRecipe& loaded, int64_t world_size, int64_t rank, int64_t steps) {
  spdlog::set_level(spdlog::level::off);
  Job::Options options;
  options.quiet = true;
  options.rendezvous.emplace();
  options.rendezvous->rank = rank;
  options.rendezvous->world_size = world_size;
  options.dry_run = true;
  Job job(loaded, options);
  job.model->train();
  DryRun result;
  result.world_size = world_size;
  result.samples = first_samples(job, rank);
  Progress& progress = job.progress;
  for (; progress.step < steps; ++progress.epoch, progress.batch = 0) {
    const auto batches = job.train_loader->iterate(progress.epoch);
    while (progress.batch < job.train_loader->num_batches() && progress.step < steps) {
      const int64_t first = progress.batch;
      train_step(job, *batches);
      for (int64_t batch = first; batch < progress.batch; ++batch) {
        result.num_samples += job.train_loader->batch_size(batch);
      }
    }
  }
  result.resources = resources_of(job, steps);
  result.peak_resident_bytes = peak_resident_bytes();
  return result;
}

}  // namespace trainrun
