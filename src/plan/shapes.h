// Sizes of a target, a drafter and a training step, as far as memory and operations follow from
// them. Plain numbers: whoever has a model fills them in.
#pragma once

#include <cstdint>
#include <string>

namespace dflash::plan {

struct TargetShape {
  std::string family;
  int64_t hidden_size = 0, num_layers = 0, vocab_size = 0;
  int64_t q_width = 0, kv_width = 0;  // of an attention block: heads * head dim
  int64_t intermediate_size = 0;      // inner width that a token meets in a block
  int64_t attention_blocks = 0;       // of num_layers; the others are recurrent
  int64_t block_parameters = 0;       // of all blocks together
  int64_t active_parameters = 0;      // of these, what one token meets (fewer with experts)
  int64_t state_bytes = 0;            // recurrent state of one sequence
  bool tied_embeddings = false;       // table and head are one matrix
  // Where the kernels multiply with the blocks of a quantised file: bytes of these; 0: all weights
  // are widened.
  int64_t kept_block_bytes = 0, kept_block_parameters = 0, kept_head_bytes = 0;
  int64_t file_bytes = 0;  // of the weights' files; 0: only its config.json is here
};

struct DrafterShape {
  int64_t num_layers = 2, block_size = 8, num_taps = 5;
  int64_t hidden_size = 0, target_hidden_size = 0, intermediate_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0;      // rows of its head
  bool reduced_vocab = false;  // its head is a copy of some of the target's rows

  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  int64_t features() const { return num_taps * target_hidden_size; }
  int64_t layer_matrices() const;  // elements
  int64_t matrices() const;        // with fc
  int64_t vectors() const;         // norms
  int64_t parameters() const { return matrices() + vectors(); }
};

enum class Optimizer { kAdamW, kMuon };
enum class Precision { kF32, kBF16 };

/// What one step trains at once. A row is packed documents; a pass is up to anchors_per_pass blocks
/// of one row; a step is rows until it has its anchors.
struct StepShape {
  int64_t row_tokens = 2048;   // of the largest row
  int64_t row_documents = 1;   // documents of it
  int64_t pass_anchors = 512;  // blocks of the largest pass
  int64_t step_tokens = 2048;  // of all rows of a step, on average
  int64_t step_anchors = 512;  // of all passes of a step, on average
  int64_t step_passes = 1;
  int64_t dataset_tokens = 0;  // 0: unknown
  int64_t mapped_tokens = 0;   // tokens whose stored features a run touches
  int64_t mapped_pieces = 0;   // in so many places of the files
  Precision precision = Precision::kBF16;
  Optimizer optimizer = Optimizer::kMuon;
  bool live_target = true;    // the target runs in the same process, else features are stored
  bool soft_loss = false;     // needs the target's last hidden state and its distribution
  bool head_tiles = true;     // the loss packs the head for AMX (bf16 only)
  bool tile_products = true;  // products read the live weights in bf16 tiles; else rounded copies
  int64_t threads = 1;

  int64_t weight_bytes() const { return precision == Precision::kBF16 ? 2 : 4; }
};

}  // namespace dflash::plan
