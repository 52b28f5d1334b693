// Runs llm.c's CPU trainer at a given shape. Includes train_gpt2.c from the user's checkout (-I LLMC_DIR);
// TESTING excludes its main(), which fixes the batch. See llmc_peer.sh.
#define TESTING
#include "train_gpt2.c"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static uint64_t random_state = 0x9E3779B97F4A7C15u;
static uint32_t next_random(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33);
}

// Writes a checkpoint in llm.c's format: 256 header words, then the parameters (small random weights; norm
// weights are 1).
static void write_checkpoint(const char* path, GPT2Config config) {
  FILE* file = fopenCheck(path, "wb");
  int header[256] = {20240326,          3,               config.max_seq_len, config.vocab_size,
                     config.num_layers, config.num_heads, config.channels,    config.padded_vocab_size};
  fwrite(header, sizeof(int), 256, file);
  size_t sizes[NUM_PARAMETER_TENSORS];
  fill_in_parameter_sizes(sizes, config);
  for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
    int norm_weight = tensor == 2 || tensor == 8 || tensor == 14;
    for (size_t i = 0; i < sizes[tensor]; i++) {
      float value = norm_weight ? 1.0f : 0.07f * ((float)next_random() / 2147483648.0f - 0.5f);
      fwrite(&value, sizeof(float), 1, file);
    }
  }
  fcloseCheck(file);
}

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: llmc_peer CHECKPOINT BATCH LENGTH STEPS LAYERS WARMUP\n");
    return 2;
  }
  size_t batch = atoi(argv[2]), length = atoi(argv[3]);
  int steps = atoi(argv[4]), warmup = atoi(argv[6]);
  GPT2Config config = {.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304,
                       .num_layers = atoi(argv[5]), .num_heads = 12, .channels = 768};
  write_checkpoint(argv[1], config);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  remove(argv[1]);

  int* tokens = (int*)malloc((batch * length + 1) * sizeof(int));
  double* seconds = (double*)malloc(steps * sizeof(double));
  for (int step = -warmup; step < steps; step++) {  // the first step also allocates
    for (size_t i = 0; i <= batch * length; i++) tokens[i] = next_random() % config.vocab_size;
    double begin = now();
    gpt2_forward(&model, tokens, tokens + 1, batch, length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + warmup + 1);
    if (step >= 0) seconds[step] = now() - begin;
  }
  qsort(seconds, steps, sizeof(double), ascending);
  double median = seconds[steps / 2];
  double matmul = (double)config.channels * config.vocab_size +
                  12.0 * config.num_layers * config.channels * config.channels;
  double flops = 6 * (matmul + (double)config.num_layers * length * config.channels) * batch * length;
  printf("{\"program\": \"llm.c\", \"model\": \"gpt2\", \"layers\": %d, \"dtype\": \"fp32\", \"batch\": %zu, "
         "\"length\": %zu, \"steps\": %d, \"step_s\": %.4f, \"tokens_per_s\": %.1f, \"gflops\": %.1f, \"loss\": %.4f}\n",
         config.num_layers, batch, length, steps, median, batch * length / median, flops / median / 1e9,
         model.mean_loss);
  gpt2_free(&model);
  free(tokens);
  free(seconds);
  return 0;
}
