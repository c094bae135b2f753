#include <ATen/ops/tensor.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "runner/generate/generation.h"
#include "runner/train/job.h"
#include "runner/train/job_parts.h"

namespace trainrun {
namespace {

constexpr int64_t kTextsAtOnce = 8;

class RunTexts : public TextSource {
 public:
  explicit RunTexts(Job& job) : job_(job) {}

  void check(const std::vector<std::string>& prompts) override {
    if (job_.eval_splits.empty() || !job_.recipe.evaluation.every) {
      throw Error(
          "texts are written after evaluations, but the run makes none; give it dataset.eval and evaluation.every");
    }
    check_language_model(model());
    if (!model().codec) throw Error("dataset.train names no tokenizer with which prompts could be read");
    prompts_of(prompts);
  }

  void show(const std::vector<std::string>& prompts, const GenerationOptions& options) override {
    if (job_.is_main() && !job_.folder) return;  // a dry run keeps nothing, and texts change nothing
    const Tensors random = job_.random_states();
    const PhaseScope phase(*job_.group, Phase::kEvaluation);
    {
      const EvaluationScope scope(*job_.callbacks);
      if (scope.changes()) job_.parallel->share_buffers();
      job_.model->train(false);
      // Where parameters are sharded, every rank is part of each pass; otherwise the others wait for rank 0.
      if (job_.is_main() || job_.shards()) write(prompts_of(prompts), options);
      job_.model->train();
    }
    job_.group->barrier("text samples");
    job_.set_random_states(random);
  }

 private:
  /// Made when first asked for: most runs have no such callback.
  const LanguageModel& model() {
    if (model_) return *model_;
    model_ = language_model_of(job_.recipe, *job_.model, job_.device, job_.train_data->learnt());
    if (job_.shards() && model_->own_plan) {
      throw Error("a model that reads pairs of texts writes no text samples where its parameters are sharded");
    }
    if (job_.shards()) {
      model_->agree = [this](const std::vector<int64_t>& tokens) {
        const at::Tensor shared = at::tensor(tokens, at::kLong);
        job_.group->broadcast({shared}, "text samples");
        const int64_t* first = shared.const_data_ptr<int64_t>();
        return std::vector<int64_t>(first, first + shared.numel());
      };
    }
    return *model_;
  }

  std::vector<Prompt> prompts_of(const std::vector<std::string>& texts) {
    std::vector<Prompt> prompts;
    for (size_t i = 0; i < texts.size(); ++i) {
      prompts.push_back(prompt_of(texts[i], "prompts[" + std::to_string(i) + "]", model()));
    }
    return prompts;
  }

  void write(const std::vector<Prompt>& prompts, GenerationSettings options) {
    if (const auto end = model().codec->end_token()) options.end_tokens = {*end};
    options = with_ends(std::move(options), model());
    Generator generator(model(), std::move(options));
    std::vector<GeneratedText> texts;
    try {
      texts = generator.run(prompts, kTextsAtOnce);
    } catch (const NonFiniteLogits& error) {  // the same on all ranks; the training itself says what is wrong with it
      return spdlog::warn("no text samples after step {}: {}", job_.progress.step, error.what());
    }
    if (!job_.is_main()) return;
    std::string file;
    for (const GeneratedText& text : texts) {
      const std::string whole = prompts[text.prompt].text + text.text;
      spdlog::info("sample after step {}: {}", job_.progress.step, whole);
      file += "--- prompt " + std::to_string(text.prompt + 1) + ", sample " + std::to_string(text.sample + 1) + "\n" +
              whole + "\n";
    }
    const std::string folder = job_.folder->path() + "/samples";
    create_folders(folder);
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "step-%08lld.txt", static_cast<long long>(job_.progress.step));
    write_file_atomically(folder + "/" + name.data(), file);
  }

  Job& job_;
  std::optional<LanguageModel> model_;
};

}  // namespace

std::unique_ptr<TextSource> texts_of(Job& job) { return std::make_unique<RunTexts>(job); }

}  // namespace trainrun
