#pragma once

#include "registry/components/callbacks/text_samples.h"
#include "runner/train/sample_losses.h"
#include "runner/train/stateful.h"

namespace trainrun {

class Job;
using Parts = std::vector<std::unique_ptr<Stateful>>;

/// The part that says which data a checkpoint is of.
constexpr const char* kDataPart = "data";

/// All of a job's, in the order in which they are taken back: each may look at what those before it have put back.
Parts parts_of_job(Job& job);

void add_data_parts(Job& job, Parts& parts);
void add_model_parts(Job& job, Parts& parts);
void add_progress_part(Job& job, Parts& parts);
void add_step_parts(Job& job, Parts& parts);
void add_callback_parts(Job& job, Parts& parts);

/// The texts of a job's model, for its callbacks (run_texts.cpp). The job must outlive it.
std::unique_ptr<TextSource> texts_of(Job& job);

/// The account of single samples' losses, for its callbacks (run_sample_losses.cpp). The job must outlive it. Throws
/// Error where a loss has no form for single samples, or a sample of a batch is not one of the data set.
std::unique_ptr<SampleLossAccount> sample_losses_of(Job& job);

}  // namespace trainrun
