#pragma once

#include <ATen/Functions.h>

#include "registry/catalog.h"
#include "registry/graph/graph.h"
#include "registry/kinds/batch_fields.h"
#include "registry/kinds/changes_parameters.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/metric_details.h"
#include "registry/plugin_abi.h"

/// The header that a plugin includes. A plugin is a shared library that adds components of any kind.
///
///   #include <registry/plugin.h>
///
///   struct Scale {
///     double factor = 1;
///     static void describe(trainrun::Fields<Scale>& f) { f.optional("factor", &Scale::factor).doc("what to multiply by"); }
///     trainrun::Layer build(const trainrun::LayerInputs&) const {
///       return trainrun::layer_of_function([factor = factor](const at::Tensor& x) { return x * factor; });
///     }
///   };
///
///   TRAINRUN_PLUGIN(catalog) { catalog.layers.add<Scale>("Scale", "multiplies by a factor"); }

// NOLINTBEGIN(bugprone-macro-parentheses): the name of a parameter
#define TRAINRUN_PLUGIN(catalog)                                                                                  \
  __attribute__((section(TRAINRUN_PLUGIN_SECTION), used)) static const char trainrun_plugin_tag[] = TRAINRUN_ABI; \
  static void trainrun_plugin_body(trainrun::Catalog& catalog);                                                   \
  extern "C" __attribute__((visibility("default"))) const char* trainrun_plugin_abi() { return TRAINRUN_ABI; }    \
  extern "C" __attribute__((visibility("default"))) void trainrun_plugin_register(trainrun::Catalog& target) {    \
    trainrun_plugin_body(target);                                                                                 \
  }                                                                                                               \
  static void trainrun_plugin_body(trainrun::Catalog& catalog)
// NOLINTEND(bugprone-macro-parentheses)
