#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>

#include "registry/data/texts/text_corpus.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/web/named_sources.h"
#include "runner/generate/generation.h"
#include "runner/generate/generation_config.h"
#include "runner/model/pretrained_weights.h"
#include "runner/train/evaluation.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct GenerateArguments {
  RecipeArguments run;
  std::vector<std::string> prompts;
  std::string file;
  GenerationWishes wishes;
  GenerationOptions options;
  std::optional<int64_t> num_samples;
  int64_t batch_size = 8;
  bool no_cache = false;
  std::string tokenizer;
  std::string output;
};

constexpr const char* kFooter =
    "Without --prompt and --prompts, standard input is one prompt.\n"
    "\n"
    "As in transformers, decoding is greedy, unless one of --temperature, --top-k and --top-p is given or the "
    "folder's\n"
    "generation_config.json has do_sample: true. Options override the other settings of that file, such as\n"
    "eos_token_id. A text depends only on its prompt, the seed and the number of the sample, not on the other "
    "prompts.\n"
    "Prompts for a run are encoded like its training data; those for a folder begin with the special tokens of its\n"
    "tokenizer.\n"
    "\n"
    "If a text becomes longer than the number of positions of the model (max_len, n_positions), the model sees only\n"
    "the last tokens, as in nanoGPT; from there on each new token costs a pass over all of them.";

void add_sampling(CLI::App& verb, GenerateArguments& arguments) {
  GenerationWishes& wishes = arguments.wishes;
  GenerationOptions& options = arguments.options;
  verb.add_option("--max-new-tokens", wishes.max_new_tokens,
                  "maximum number of tokens to generate for each prompt (100)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  verb.add_option("--temperature", wishes.temperature,
                  "draw tokens, the logits divided by this (1); 0: always the most probable one")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-k", wishes.top_k, "draw from this many of the most probable tokens (50); 0: from all")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-p", wishes.top_p, "draw from the fewest tokens whose probabilities add up to this (1)")
      ->check(CLI::Range(1e-9, 1.0));
  verb.add_option("--repetition-penalty", wishes.repetition_penalty,
                  "above 1: makes tokens that are already in the text less probable (1)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--seed", options.seed, "seed of the draws (0)");
  verb.add_option("--num-samples", arguments.num_samples, "number of continuations of each prompt (1)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb.add_option("--stop", options.stop,
                  "string or special token at which generation stops; may be given several times")
      ->check([](const std::string& text) { return text.empty() ? "is an empty text" : ""; })
      ->allow_extra_args(false);
}

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

/// {"prompt": "text"} or {"input_ids": [1, 2]}.
Prompt prompt_of_json(const std::string& line, const std::string& origin, const LanguageModel& model) {
  const nlohmann::json object = json_object(line, origin);
  if (const auto text = object.find("prompt"); text != object.end()) {
    if (!text->is_string()) throw DataError(origin + ":prompt: expected a string, found " + text->type_name());
    return prompt_of(text->get<std::string>(), origin, model);
  }
  const auto ids = object.find("input_ids");
  if (ids == object.end()) throw DataError(origin + ": has no key 'prompt', nor 'input_ids'");
  std::vector<int64_t> tokens;
  for (const auto& id : *ids) {
    if (!id.is_number_integer()) throw DataError(origin + ":input_ids: expected whole numbers, found " + id.dump());
    tokens.push_back(id.get<int64_t>());
  }
  return prompt_of(tokens, origin, model);
}

std::vector<Prompt> prompts_of(const GenerateArguments& arguments, const LanguageModel& model) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < arguments.prompts.size(); ++i) {
    prompts.push_back(prompt_of(arguments.prompts[i], "prompt " + std::to_string(i + 1), model));
  }
  if (arguments.file.empty() && prompts.empty()) {
    if (isatty(STDIN_FILENO) == 1) std::fputs("prompt, ended by Ctrl-D:\n", stderr);
    prompts.push_back(prompt_of(without_last_newline(standard_input()), "standard input", model));
  }
  if (arguments.file.empty()) return prompts;
  const bool is_json = is_jsonl(arguments.file);
  std::istringstream lines(arguments.file == "-" ? standard_input() : read_text_file(arguments.file));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const std::string origin = arguments.file + ":" + std::to_string(number);
    line = without_last_newline(line);
    prompts.push_back(is_json ? prompt_of_json(line, origin, model) : prompt_of(line, origin, model));
  }
  if (prompts.empty()) throw DataError(arguments.file + ": has no prompts");
  return prompts;
}

std::string json_line(const Prompt& prompt, const GeneratedText& text) {
  nlohmann::ordered_json line;
  line["prompt"] = prompt.text;
  line["sample"] = text.sample;
  line["text"] = text.text;
  line["tokens"] = text.tokens;
  line["finish"] = text.finish;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// To standard output: a single text as it comes, several with lines between them.
void print_texts(Generator& generator, const std::vector<Prompt>& prompts, const GenerateArguments& arguments,
                 int64_t num_samples) {
  const bool is_one = prompts.size() == 1 && num_samples == 1;
  if (is_one) write_out(prompts[0].text);
  const auto texts = generator.run(prompts, arguments.batch_size, write_out);
  for (size_t i = 0; i < texts.size() && !is_one; ++i) {
    if (i > 0) write_out("---------------\n");
    write_out(prompts[texts[i].prompt].text + texts[i].text + "\n");
  }
  if (is_one) write_out("\n");
}

void generate(const LanguageModel& model, const GenerateArguments& arguments, bool quiet) {
  GenerationSettings options = arguments.options;
  if (model.codec && model.codec->end_token()) options.end_tokens = {*model.codec->end_token()};
  std::vector<std::string> notes = model.codec ? model.codec->notes() : std::vector<std::string>();
  options = with_ends(with_generation_config(options, model.folder, notes), model);
  static_cast<GenerationOptions&>(options) = with_wishes(options, arguments.wishes);
  if (arguments.wishes.max_new_tokens) options.max_length.reset();
  if (arguments.num_samples) options.num_samples = *arguments.num_samples;
  const std::vector<std::string> of_model = pretrained_notes(*model.graph);
  notes.insert(notes.begin(), of_model.begin(), of_model.end());
  for (const std::string& note : notes) {
    if (!quiet) std::fprintf(stderr, "%s\n", note.c_str());
  }
  check_language_model(model);
  const std::vector<Prompt> prompts = prompts_of(arguments, model);
  Generator generator(model, options, !arguments.no_cache);
  if (const auto& layer = generator.next_token().why_not_kept(); layer && !quiet) {
    std::fprintf(stderr,
                 "no key-value cache: %s may mix positions and cannot go on where it stopped; each token computes the "
                 "whole text anew\n",
                 layer->c_str());
  }
  if (!model.codec && arguments.output.empty()) {
    throw Error(
        "the model has no tokenizer to decode tokens with; name one (--tokenizer), or write tokens to a file "
        "(--output)");
  }
  if (arguments.output.empty()) return print_texts(generator, prompts, arguments, options.num_samples);
  FileWriter file(arguments.output);
  for (const GeneratedText& text : generator.run(prompts, arguments.batch_size)) {
    file.write(json_line(prompts[text.prompt], text));
  }
  file.finish();
}

/// device=cpu, the only override that a folder has use for.
DeviceChoice device_of(const std::vector<std::string>& overrides) {
  DeviceChoice device;
  for (const std::string& text : overrides) {
    const auto parsed = text.starts_with("device=") ? DeviceChoice::parse(text.substr(7)) : std::nullopt;
    if (!parsed)
      throw Error("'" + text + "' is not for a folder in Hugging Face's layout; it takes device=cpu, device=cuda");
    device = *parsed;
  }
  return device;
}

void generate_from(const GenerateArguments& arguments, Program& program) {
  const std::string path = model_folder(arguments.run.path, PublishedPart::kWeights);
  if (PretrainedModel::is_in(path)) {
    const PretrainedModel pretrained(path, program.catalog, device_of(arguments.run.overrides));
    LanguageModel model = pretrained.model();
    if (!arguments.tokenizer.empty()) model.codec = tokenizer_codec(arguments.tokenizer, true);
    return generate(model, arguments, program.quiet);
  }
  TrainedRun run(find_trained(path), arguments.run.overrides, program.catalog);
  const EvaluationScope scope(run.callbacks());
  run.model().train(false);
  LanguageModel model = language_model_of(run.recipe(), run.model(), run.device(), run.learnt("dataset"));
  if (!arguments.tokenizer.empty()) model.codec = tokenizer_codec(arguments.tokenizer, false);
  generate(model, arguments, program.quiet);
}

}  // namespace

void add_generate(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("generate", "generate text from prompts with a language model");
  const auto arguments = std::make_shared<GenerateArguments>();
  verb->add_option(
          "run", arguments->run.path,
          "a run's folder (its best checkpoint, else its newest), a checkpoint's, or a folder in Hugging Face's "
          "layout, or the name of a model on its hub")
      ->required();
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option("--prompt,-p", arguments->prompts, "a prompt; may be given several times")->allow_extra_args(false);
  verb->add_option("--prompts", arguments->file,
                   "a file of prompts, one a line (- is standard input), or .jsonl with {\"prompt\": \"…\"} or "
                   "{\"input_ids\": […]}");
  add_sampling(*verb, *arguments);
  verb->add_option("--batch-size", arguments->batch_size, "number of texts generated together (8)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_flag("--no-cache", arguments->no_cache,
                 "turn off the key-value cache: compute the whole text for each token");
  verb->add_option("--tokenizer", arguments->tokenizer,
                   "a folder or file of a tokenizer, if neither the run's data nor the folder has one");
  verb->add_option("--output,-o", arguments->output,
                   "a .jsonl file to write: prompt, sample, text, tokens and why the text ended; by default texts are "
                   "printed, a single one as it comes");
  verb->footer(kFooter);
  verb->callback([&program, arguments] { generate_from(*arguments, program); });
}

}  // namespace trainrun
