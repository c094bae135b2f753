#include "runner/report/errors/error_pages.h"

namespace trainrun {

void add_file_errors(std::vector<ErrorPage>& pages) {
  const auto add = [&](ErrorPage page) { pages.push_back(std::move(page)); };
  add({ErrorCode::kSyntax,
       "not YAML",
       "The text is not YAML from this place on: a bracket or a quote is never closed, a space is missing after a "
       "colon, "
       "the indentation has a tab or does not line up.",
       {"optimizer: {type: SGD, lr: 0.1"},
       "Mend the text at the place that is named, or a little before it.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kDuplicateKey,
       "a key that is there twice",
       "A mapping has the same key twice. YAML leaves open which of the two counts, so neither does.",
       {"optimizer: {type: SGD, lr: 0.1, lr: 0.2}"},
       "Take one of the two out.",
       {"optimizer: {type: SGD, lr: 0.2}"}});
  add({ErrorCode::kEncoding,
       "characters that a recipe cannot have",
       "A recipe is UTF-8 without control characters. Spaces that look like spaces and are not, such as U+00A0 from a "
       "web "
       "page, would become part of a key.",
       {"optimizer:\xC2\xA0{type: SGD, lr: 0.1}"},
       "Save the file as UTF-8, and write ordinary spaces; in a text that is meant to have such a character, write it "
       "as "
       "an escape in double quotes.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kTooLarge,
       "larger than a recipe may be",
       "A recipe is bounded in bytes, in depth, in values once its aliases are expanded, and in layers, so that none "
       "can "
       "use up the memory of the machine.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10, repeat: 1000000}]"},
       "Write less: the message gives the bound.",
       {"model:\n  layers: [Flatten, {type: Linear, out_features: 10, repeat: 3}]"}});
  add({ErrorCode::kNotARecipe,
       "no mapping of keys",
       "The file is YAML, and no mapping: it is empty, a list or a single value.",
       {"[Flatten, Linear]"},
       "Write the sections of a recipe: model, loss, dataset, optimizer, training.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kReference,
       "a `${…}` without a value",
       "`${name}` stands for another value of the recipe, `${env:NAME}` for an environment variable, and arithmetic "
       "may be "
       "done between them. Here the name is unknown, refers to itself, or the arithmetic has no result.",
       {"name: ${model.nmae}"},
       "Write the path of a value that is there, from the top of the recipe on; `${env:NAME:-text}` has a default. A "
       "literal `${` is written `$${`.",
       {"name: run_${seed}", "seed: 7"}});
  add({ErrorCode::kBase,
       "a base that cannot be used",
       "`base:` names recipes on which this one is based. One of them is not there, cannot be read, is not a recipe, "
       "or is "
       "based on this one in turn.",
       {"base: no_such_recipe.yaml"},
       "Paths are looked for beside the recipe first, then from the current folder. Mend the path, or leave `base` "
       "out.",
       {}});
  add({ErrorCode::kMerge,
       "something that cannot be merged or removed",
       "`!remove`, `!replace` and `<<` say how mappings are laid over each other, and here they stand where that means "
       "nothing: nothing to remove, a value that replaces anyway, a merge of what is not a mapping.",
       {"optimizer: {type: SGD, lr: !remove 0.1}"},
       "`key: !remove` takes away what a base says, with nothing behind it; `key: !replace {…}` puts a mapping in the "
       "place of the base's.",
       {"optimizer: {type: SGD, lr: 0.1}"}});
  add({ErrorCode::kOverride,
       "not an override",
       "After the recipe, the command line has words of the form `key=value`, with the path of a key and a value as "
       "YAML "
       "has it.",
       {},
       "Write key=value: trainrun RECIPE optimizer.lr=0.2. A value with spaces or brackets needs the shell's quotes.",
       {},
       "optimizer.lr:0.2"});
  add({ErrorCode::kPlugin,
       "a plugin that cannot be loaded",
       "`plugins:` names shared libraries of components. This one is not there, is not a library, or was built for "
       "another "
       "version of trainrun.",
       {"plugins: [libmine.so]"},
       "Paths are looked for beside the recipe first, then from the current folder. Build the plugin against this "
       "trainrun, or leave it out.",
       {}});
  add({ErrorCode::kUnreadable,
       "a recipe that cannot be read",
       "There is no file of this name, or the system does not let it be read.",
       {},
       "Mend the path. `trainrun recipes/digits_cnn.yaml` runs a recipe that trainrun brings along, from any folder.",
       {}});
}

}  // namespace trainrun
