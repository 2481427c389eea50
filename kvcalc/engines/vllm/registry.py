"""Which classes each release of vLLM serves, by the span of releases that do; and the library's classes.

Written by ``tests/tools/read_vllm_registry.py`` from ``vllm/model_executor/models/registry.py`` of every known release and
from transformers' ``models/auto/modeling_auto.py``. Not to be edited.
"""

from __future__ import annotations

# Releases that serve them → classes.
CLASSES: dict[str, str] = {
    "0.17.0-": (
        " AXK1ForCausalLM BailingMoeV2_5ForCausalLM ColBERTJinaRobertaModel ColBERTModernBertModel ColModernVBertForRetrieval"
        " ColQwen3 FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration LlamaNemotronVLForSequenceClassification"
        " LlamaNemotronVLModel OpsColQwen3Model Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM Qwen3ASRRealtimeGeneration"
        " Qwen3VLNemotronEmbedModel Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration "
    ),
    "0.11.1-": (
        " AfmoeForCausalLM BeeForConditionalGeneration BertSpladeSparseEmbeddingModel CLIPModel DeepseekOCRForCausalLM"
        " FlexOlmoForCausalLM KimiLinearForCausalLM Lfm2MoeForCausalLM LightOnOCRForConditionalGeneration MiniMaxM2ForCausalLM"
        " ModernBertForTokenClassification PaddleOCRVLForConditionalGeneration PanguEmbeddedForCausalLM"
        " PanguUltraMoEForCausalLM Qwen3OmniMoeForConditionalGeneration SiglipModel "
    ),
    "0.33.0-": (
        " AliceAIForCausalLM Alpamayo2Super BeamForCausalLM ClefFlashForJointSchema ColUltraVBertForRetrieval"
        " D3ForSequenceClassification DomynEdgeForCausalLM DoryForCausalLM FlintForCausalLM Kolibri1ForCausalLM"
        " Lfm2BidirectionalModel MiniCPMOcrForConditionalGeneration ModernVBertModel MuseSparkForConditionalGeneration"
        " RadioMBartPrefixForCausalLM Step5ForCausalLM Step5ForConditionalGeneration "
    ),
    "0.10.2-": (
        " ApertusForCausalLM Ernie4_5_VLMoeForConditionalGeneration Gemma3TextModel GteNewForSequenceClassification"
        " InternVLForConditionalGeneration KeyeVL1_5ForConditionalGeneration Lfm2ForCausalLM MiDashengLMModel Ovis2_5"
        " Qwen3NextForCausalLM RForConditionalGeneration SeedOssForCausalLM Terratorch "
    ),
    "0.8.5-0.24.0": (
        " AquilaForCausalLM AquilaModel AyaVisionForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM"
        " Grok1ModelForCausalLM MantisForConditionalGeneration "
    ),
    "0.10.0-": (
        " ArceeForCausalLM BailingMoeForCausalLM Exaone4ForCausalLM Glm4MoeForCausalLM HunYuanDenseV1ForCausalLM"
        " JinaVLForRanking Llama_Nemotron_Nano_VL VoxtralForConditionalGeneration "
    ),
    "0.8.5-0.28.0": (
        " ArcticForCausalLM ChameleonForConditionalGeneration Fairseq2LlamaForCausalLM GritLM MPTForCausalLM MptForCausalLM"
        " PrithviGeoSpatialMAE RWForCausalLM StableLMEpochForCausalLM "
    ),
    "0.8.5-": (
        " AriaForConditionalGeneration BertForSequenceClassification BertModel Blip2ForConditionalGeneration BloomForCausalLM"
        " ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM CohereForCausalLM DbrxForCausalLM DeciLMForCausalLM"
        " DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekVLV2ForCausalLM ExaoneForCausalLM"
        " FalconForCausalLM FalconMambaForCausalLM GLM4VForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM"
        " GPTNeoXForCausalLM Gemma2ForCausalLM Gemma2Model Gemma3ForCausalLM Gemma3ForConditionalGeneration GemmaForCausalLM"
        " Glm4ForCausalLM GlmForCausalLM GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeSharedForCausalLM"
        " GraniteSpeechForConditionalGeneration GteModel H2OVLChatModel Idefics3ForConditionalGeneration InternLM2ForCausalLM"
        " InternLM2ForRewardModel InternLM3ForCausalLM InternVLChatModel JambaForCausalLM JambaForSequenceClassification"
        " KimiVLForConditionalGeneration LLaMAForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM LlamaModel"
        " LlavaForConditionalGeneration LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration"
        " LlavaOnevisionForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM"
        " MiniCPMO MiniCPMV Mistral3ForConditionalGeneration MistralForCausalLM MistralModel MixtralForCausalLM"
        " ModernBertForSequenceClassification MolmoForCausalLM NVLM_D NemotronForCausalLM NomicBertModel OPTForCausalLM"
        " Olmo2ForCausalLM OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM PaliGemmaForConditionalGeneration Phi3ForCausalLM"
        " Phi3VForCausalLM Phi4MMForCausalLM PhiForCausalLM PhiMoEForCausalLM PixtralForConditionalGeneration"
        " Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2ForProcessRewardModel Qwen2ForRewardModel Qwen2Model"
        " Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration"
        " Qwen3ForCausalLM Qwen3MoeForCausalLM RobertaForMaskedLM RobertaForSequenceClassification RobertaModel"
        " SkyworkR1VChatModel SmolVLMForConditionalGeneration SolarForCausalLM StableLmForCausalLM Starcoder2ForCausalLM"
        " TeleChat2ForCausalLM TeleFLMForCausalLM UltravoxModel WhisperForConditionalGeneration"
        " XLMRobertaForSequenceClassification XLMRobertaModel Zamba2ForCausalLM "
    ),
    "0.13.0-": (" AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration Jais2ForCausalLM "),
    "0.11.0-": (
        " BailingMoeV2ForCausalLM BertForTokenClassification CwmForCausalLM DeepseekV32ForCausalLM DotsOCRForCausalLM"
        " LongcatFlashForCausalLM NemotronH_Nano_VL_V2 Olmo3ForCausalLM Qwen3VLForConditionalGeneration"
        " Qwen3VLMoeForConditionalGeneration "
    ),
    "0.28.0-": (
        " BailingMoeV3ForCausalLM Dots3NoteForCausalLM InternS2MobiusForConditionalGeneration MuseGlimmerForCausalLM"
        " MuseGlimmerForConditionalGeneration "
    ),
    "0.30.0-": (
        " BailingMoeV3VLForConditionalGeneration CohereCompassForConditionalGeneration DeepseekV41ForCausalLM"
        " DeepseekV4ForConditionalGeneration Glm5NextForCausalLM Glm5NextForConditionalGeneration K2HorizonForCausalLM"
        " NanbeigeForCausalLM "
    ),
    "0.8.5-0.23.0": (
        " BambaForCausalLM InternLM2VEForCausalLM InternLMForCausalLM MiniMaxText01ForCausalLM QWenLMHeadModel"
        " QwenVLForConditionalGeneration XverseForCausalLM "
    ),
    "0.8.5-0.10.2": (" BartForConditionalGeneration BartModel Florence2ForConditionalGeneration MllamaForConditionalGeneration "),
    "0.26.0-": (
        " BertForMaskedLM Cosmos3EdgeForConditionalGeneration InklingForCausalLM InklingForConditionalGeneration"
        " LongcatFlashNgramForCausalLM RobertaForTokenClassification XLMRobertaForTokenClassification "
    ),
    "0.15.0-": (
        " BgeM3EmbeddingModel Eagle2_5_VLForConditionalGeneration Glm4MoeLiteForCausalLM KimiK25ForConditionalGeneration"
        " Molmo2ForConditionalGeneration Step1ForCausalLM StepVLForConditionalGeneration "
    ),
    "0.20.0-0.28.0": (" Cheers CheersForConditionalGeneration FireRedLIDForConditionalGeneration "),
    "0.32.0-": (" ClefOmniForJointSchema EmbeddingGemma2Model MiniCPMV4_7ForConditionalGeneration "),
    "0.21.0-": (
        " Cohere2MoeForCausalLM HfMoondream LagunaForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM Moondream3ForCausalLM"
        " QianfanOCRForConditionalGeneration "
    ),
    "0.10.1-": (
        " Cohere2VisionForConditionalGeneration Emu3ForConditionalGeneration Ernie4_5ForCausalLM Gemma3nForCausalLM"
        " Glm4vMoeForConditionalGeneration GptOssForCausalLM InternS1ForConditionalGeneration Llama4ForCausalLM"
        " SmolLM3ForCausalLM Step3TextForCausalLM Step3VLForConditionalGeneration "
    ),
    "0.19.0-": (
        " CohereAsrForConditionalGeneration ColBERTLfm2Model ColQwen3_5 Gemma4ForCausalLM Gemma4ForConditionalGeneration"
        " Qwen3ASRForcedAlignerForTokenClassification "
    ),
    "0.18.0-": (
        " ColPaliForRetrieval HCXVisionV2ForCausalLM HyperCLOVAXForCausalLM MoonshotKimiaForCausalLM OlmoHybridForCausalLM"
        " SarvamMLAForCausalLM SarvamMoEForCausalLM "
    ),
    "0.23.0-": (
        " Cosmos3ForConditionalGeneration Gemma4UnifiedForConditionalGeneration GraniteSpeechPlusForConditionalGeneration"
        " Step3p7ForConditionalGeneration "
    ),
    "0.16.0-": (
        " DeepseekOCR2ForCausalLM FunAudioChatForConditionalGeneration GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration"
        " HF_ColBERT InternS1ProForConditionalGeneration NemotronHPuzzleForCausalLM OpenPanguVLForConditionalGeneration"
        " Qwen3ASRForConditionalGeneration VoxtralRealtimeGeneration VoyageQwen3BidirectionalEmbedModel "
    ),
    "0.29.0-": (
        " DeepseekV3BidirectionalModel GraniteMoeSWAForCausalLM GraniteSWAForCausalLM HYV4ForCausalLM"
        " NemotronH_Omni_Reasoning_V3 Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration "
    ),
    "0.20.0-": (
        " DeepseekV4ForCausalLM Exaone4_5_ForConditionalGeneration Granite4VisionForConditionalGeneration HYV3ForCausalLM"
        " JinaEmbeddingsV5Model JinaForRanking Ministral3ForCausalLM NemotronH_Nano_Omni_Reasoning_V3"
        " NemotronH_Super_Omni_Reasoning_V3 Param2MoEForCausalLM Phi4ForCausalLMV Rnj1ForCausalLM TeleChat3ForCausalLM "
    ),
    "0.24.0-": (
        " DiffusionGemmaForBlockDiffusion HrmTextForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration"
        " MossAudioModel "
    ),
    "0.10.2-0.10.2": (" DonutForConditionalGeneration NemotronH_Nano_VL "),
    "0.9.2-0.23.0": (" Dots1ForCausalLM MiniMaxM1ForCausalLM "),
    "0.9.2-0.10.0": (" Ernie4_5_ForCausalLM "),
    "0.9.2-": (
        " Ernie4_5_MoeForCausalLM GPT2ForSequenceClassification Gemma3nForConditionalGeneration Glm4vForConditionalGeneration"
        " HunYuanMoEV1ForCausalLM KeyeForConditionalGeneration "
    ),
    "0.18.0-0.23.0": (" ErnieForSequenceClassification ErnieForTokenClassification ErnieModel "),
    "0.14.0-0.26.0,0.32.0-": (" ExaoneMoEForCausalLM "),
    "0.27.0-": (
        " ExaoneMoeForCausalLM KimiK3ForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM VaultGemmaForCausalLM"
        " VibeVoiceAsrForConditionalGeneration "
    ),
    "0.9.0-": (
        " FalconH1ForCausalLM GraniteMoeHybridForCausalLM GteNewModel MiMoForCausalLM ModernBertModel Ovis"
        " Qwen2_5OmniForConditionalGeneration "
    ),
    "0.8.5-0.25.1": (" FuyuForCausalLM PersimmonForCausalLM "),
    "0.14.0-": (
        " GlmAsrForConditionalGeneration IQuestCoderForCausalLM IQuestLoopCoderForCausalLM IsaacForConditionalGeneration"
        " KananaVForConditionalGeneration Lfm2VlForConditionalGeneration LlamaBidirectionalForSequenceClassification"
        " LlamaBidirectionalModel MiMoV2FlashForCausalLM NemotronParseForConditionalGeneration PanguProMoEV2ForCausalLM "
    ),
    "0.14.0-0.24.0": (" Grok1ForCausalLM "),
    "0.10.1-0.28.0": (" HCXVisionForCausalLM "),
    "0.12.0-": (" HunYuanVLForConditionalGeneration MistralLarge3ForCausalLM OpenCUAForConditionalGeneration Plamo3ForCausalLM "),
    "0.22.0-": (" InternS2PreviewForConditionalGeneration MiniCPMV4_6ForConditionalGeneration OpenVLAForActionPrediction "),
    "0.8.5-0.22.1": (" JAISLMHeadModel "),
    "0.25.0-": (
        " LlavaOnevision2ForConditionalGeneration MossTranscribeDiarizeForConditionalGeneration"
        " OpenAIPrivacyFilterForTokenClassification UnlimitedOCRForCausalLM "
    ),
    "0.10.1-0.10.2": (" MBartForConditionalGeneration "),
    "0.22.1-": (" MellumForCausalLM "),
    "0.10.0-0.23.0": (" MiniMaxForCausalLM "),
    "0.9.0-0.23.0": (" MiniMaxVL01ForConditionalGeneration "),
    "0.10.2-0.11.0": (" MotifForCausalLM "),
    "0.16.0-0.24.0": (" MusicFlamingoForConditionalGeneration "),
    "0.9.1-": (" NemotronHForCausalLM "),
    "0.11.1-0.26.0": (" OuroForCausalLM "),
    "0.8.5-0.9.2": (" Phi3SmallForCausalLM Qwen2ForSequenceClassification "),
    "0.10.0-0.10.2": (" Phi4FlashForCausalLM "),
    "0.10.1-0.12.0": (" Phi4MultimodalForCausalLM "),
    "0.8.5-0.26.0": (" Plamo2ForCausalLM "),
    "0.8.5-0.10.1.1": (" QuantMixtralForCausalLM "),
    "0.9.2-0.9.2": (" Qwen3ForSequenceClassification "),
    "0.15.1-": (" Step3p5ForCausalLM "),
    "0.9.2-0.24.0": (" Tarsier2ForConditionalGeneration "),
    "0.9.1-0.24.0": (" TarsierForConditionalGeneration "),
    "0.12.0-0.25.1": (" TeleChatForCausalLM "),
    "0.14.0-0.15.1": (" VoxtralStreamingGeneration "),
}

# The first of the releases of transformers read that has them → classes.
LIBRARY: dict[str, str] = {
    "4.57.6": (
        " ApertusForCausalLM ArceeForCausalLM AriaForConditionalGeneration AriaTextForCausalLM"
        " AyaVisionForConditionalGeneration BambaForCausalLM BartForCausalLM BartForConditionalGeneration BertGenerationDecoder"
        " BertLMHeadModel BigBirdForCausalLM BigBirdPegasusForCausalLM BigBirdPegasusForConditionalGeneration BioGptForCausalLM"
        " BitNetForCausalLM BlenderbotForCausalLM BlenderbotForConditionalGeneration BlenderbotSmallForCausalLM"
        " BlenderbotSmallForConditionalGeneration Blip2ForConditionalGeneration BlipForConditionalGeneration BloomForCausalLM"
        " BltForCausalLM CTRLLMHeadModel CamembertForCausalLM ChameleonForConditionalGeneration CodeGenForCausalLM"
        " Cohere2ForCausalLM Cohere2VisionForConditionalGeneration CohereForCausalLM CpmAntForCausalLM Data2VecTextForCausalLM"
        " DbrxForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekVLForConditionalGeneration"
        " DeepseekVLHybridForConditionalGeneration DiaForConditionalGeneration DiffLlamaForCausalLM DogeForCausalLM"
        " Dots1ForCausalLM ElectraForCausalLM Emu3ForCausalLM Emu3ForConditionalGeneration EncoderDecoderModel"
        " Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM ErnieForCausalLM EvollaForProteinText2Text Exaone4ForCausalLM"
        " FSMTForConditionalGeneration FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM FlexOlmoForCausalLM"
        " Florence2ForConditionalGeneration FuyuForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM"
        " GPTNeoForCausalLM GPTNeoXForCausalLM GPTNeoXJapaneseForCausalLM GPTSanJapaneseForConditionalGeneration"
        " Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM Gemma3nForConditionalGeneration"
        " GemmaForCausalLM GitForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4vForConditionalGeneration"
        " Glm4vMoeForConditionalGeneration GlmForCausalLM GotOcr2ForConditionalGeneration GptOssForCausalLM GraniteForCausalLM"
        " GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM GraniteSpeechForConditionalGeneration"
        " HeliumForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM Idefics2ForConditionalGeneration"
        " Idefics3ForConditionalGeneration IdeficsForVisionText2Text InstructBlipForConditionalGeneration"
        " InternVLForConditionalGeneration JambaForCausalLM JanusForConditionalGeneration JetMoeForCausalLM"
        " Kosmos2ForConditionalGeneration Kosmos2_5ForConditionalGeneration KyutaiSpeechToTextForConditionalGeneration"
        " LEDForConditionalGeneration Lfm2ForCausalLM Lfm2VlForConditionalGeneration Llama4ForCausalLM"
        " Llama4ForConditionalGeneration LlamaForCausalLM LlavaForConditionalGeneration LlavaNextForConditionalGeneration"
        " LlavaNextVideoForConditionalGeneration LlavaOnevisionForConditionalGeneration LongT5ForConditionalGeneration"
        " LongcatFlashForCausalLM M2M100ForConditionalGeneration MBartForCausalLM MBartForConditionalGeneration"
        " MT5ForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM MarianForCausalLM MarianMTModel MegaForCausalLM"
        " MegatronBertForCausalLM MiniMaxForCausalLM MinistralForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM"
        " MixtralForCausalLM MllamaForCausalLM MllamaForConditionalGeneration ModernBertDecoderForCausalLM"
        " MoonshineForConditionalGeneration MoshiForCausalLM MptForCausalLM MusicgenForCausalLM MusicgenMelodyForCausalLM"
        " MvpForCausalLM MvpForConditionalGeneration NemotronForCausalLM NllbMoeForConditionalGeneration OPTForCausalLM"
        " Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoeForCausalLM OpenAIGPTLMHeadModel OpenLlamaForCausalLM"
        " Ovis2ForConditionalGeneration PLBartForCausalLM PLBartForConditionalGeneration PaliGemmaForConditionalGeneration"
        " PegasusForCausalLM PegasusForConditionalGeneration PegasusXForConditionalGeneration"
        " PerceptionLMForConditionalGeneration PersimmonForCausalLM Phi3ForCausalLM Phi4MultimodalForCausalLM PhiForCausalLM"
        " PhimoeForCausalLM Pix2StructForConditionalGeneration Pop2PianoForConditionalGeneration ProphetNetForCausalLM"
        " ProphetNetForConditionalGeneration QDQBertLMHeadModel Qwen2AudioForConditionalGeneration Qwen2ForCausalLM"
        " Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM"
        " Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration"
        " RecurrentGemmaForCausalLM ReformerModelWithLMHead RemBertForCausalLM RoCBertForCausalLM RoFormerForCausalLM"
        " RobertaForCausalLM RobertaPreLayerNormForCausalLM RwkvForCausalLM SeamlessM4TForSpeechToText SeamlessM4TForTextToText"
        " SeamlessM4Tv2ForSpeechToText SeamlessM4Tv2ForTextToText SeedOssForCausalLM SmolLM3ForCausalLM"
        " SmolVLMForConditionalGeneration Speech2Text2ForCausalLM Speech2TextForConditionalGeneration SpeechEncoderDecoderModel"
        " SpeechT5ForSpeechToText StableLmForCausalLM Starcoder2ForCausalLM SwitchTransformersForConditionalGeneration"
        " T5ForConditionalGeneration T5GemmaForConditionalGeneration TrOCRForCausalLM TransfoXLLMHeadModel"
        " UMT5ForConditionalGeneration UdopForConditionalGeneration VaultGemmaForCausalLM VipLlavaForConditionalGeneration"
        " VisionEncoderDecoderModel VoxtralForConditionalGeneration WhisperForCausalLM WhisperForConditionalGeneration"
        " XGLMForCausalLM XLMProphetNetForCausalLM XLMProphetNetForConditionalGeneration XLMRobertaForCausalLM"
        " XLMRobertaXLForCausalLM XLMWithLMHeadModel XLNetLMHeadModel XmodForCausalLM Zamba2ForCausalLM ZambaForCausalLM"
        " xLSTMForCausalLM "
    ),
    "5.17.0": (
        " AXK1ForCausalLM AXK2ForCausalLM AfmoeForCausalLM AudioFlamingo3ForConditionalGeneration"
        " CanaryForConditionalGeneration Cohere2MoeForCausalLM CohereAsrForConditionalGeneration CohereCompassForCausalLM"
        " CohereCompassForConditionalGeneration Cosmos3EdgeForConditionalGeneration Cosmos3OmniForConditionalGeneration"
        " CwmForCausalLM DeepseekOcr2ForConditionalGeneration DeepseekV32ForCausalLM DeepseekV4ForCausalLM"
        " DiffusionGemmaForBlockDiffusion Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration"
        " ExaoneMoeForCausalLM FastVlmForConditionalGeneration FunAsrNanoForConditionalGeneration Gemma4AssistantForCausalLM"
        " Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForCausalLM"
        " Gemma4UnifiedForConditionalGeneration Glm46VForConditionalGeneration Glm4MoeLiteForCausalLM"
        " Glm5NextForConditionalGeneration GlmAsrForConditionalGeneration GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration"
        " Granite4VisionForConditionalGeneration GraniteMoeSWAForCausalLM GraniteSWAForCausalLM"
        " GraniteSpeechPlusForConditionalGeneration HYV3ForCausalLM HYV4ForCausalLM HrmTextForCausalLM"
        " HunYuanVLForConditionalGeneration HyperCLOVAXForCausalLM InklingForCausalLM InklingForConditionalGeneration"
        " InstructBlipVideoForConditionalGeneration Jais2ForCausalLM KimiLinearForCausalLM Kimi_K25ForConditionalGeneration"
        " LagunaForCausalLM Lfm2MoeForCausalLM LightOnOcrForConditionalGeneration MellumForCausalLM MiMoV2FlashForCausalLM"
        " MiniCPM3ForCausalLM MiniCPMV4_6ForConditionalGeneration MiniMaxM2ForCausalLM MiniMaxM3SparseForConditionalGeneration"
        " MiniMaxM3VLForCausalLM Ministral3ForCausalLM Mistral4ForCausalLM MoonshineStreamingForConditionalGeneration"
        " MuseGlimmerForConditionalGeneration MusicFlamingoForConditionalGeneration NanoChatForCausalLM NemotronHForCausalLM"
        " OlmoHybridForCausalLM PI0ForConditionalGeneration PPFormulaNetForConditionalGeneration"
        " PaddleOCRVLForConditionalGeneration QianfanOCRForConditionalGeneration Qwen2_5OmniForConditionalGeneration"
        " Qwen2_5OmniThinkerForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration"
        " Qwen3OmniMoeThinkerForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM"
        " Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration SolarOpenForCausalLM"
        " Step3p7ForConditionalGeneration T5Gemma2ForConditionalGeneration VibeVoiceAsrForConditionalGeneration"
        " VibeVoiceForConditionalGeneration VideoLlama3ForConditionalGeneration VideoLlavaForConditionalGeneration"
        " VoxtralRealtimeForConditionalGeneration YoutuForCausalLM ZayaForCausalLM "
    ),
    "5.19.0": (" HyperCLOVAXVisionV2ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration NemotronH_Omni_Reasoning_V3 "),
    "5.20.2": (
        " BailingHybridForCausalLM BeamForCausalLM Kolibri1ForCausalLM Molmo2ForConditionalGeneration"
        " MossTranscribeDiarizeForConditionalGeneration MuseSparkForConditionalGeneration UnlimitedOcrForConditionalGeneration "
    ),
    "5.24.0": (
        " Apertus1p5ForConditionalGeneration Apertus1p5TextForCausalLM DoryForCausalLM Dots3NoteForCausalLM"
        " Dots3NoteForConditionalGeneration FlintForCausalLM GraniteDoclingForConditionalGeneration"
        " HYV4VLForConditionalGeneration Inkling2ForCausalLM Inkling2ForConditionalGeneration Inkling2LoopForCausalLM"
        " Inkling2LoopForConditionalGeneration LaraMiniForCausalLM Lfm3ForCausalLM Lfm3VlForConditionalGeneration"
        " MiniCPMOcrForConditionalGeneration MistralLarge4ForConditionalGeneration"
        " Nemotron3_5TranscribeForConditionalGeneration OmniASRForConditionalGeneration "
    ),
}

# Model type=class, one or more, for files and presets that name no class.
TYPES: dict[str, str] = {
    "": (
        " afmoe=AfmoeForCausalLM apertus=ApertusForCausalLM apertus1p5=Apertus1p5ForConditionalGeneration"
        " apertus1p5_text=Apertus1p5TextForCausalLM arcee=ArceeForCausalLM aria=AriaForConditionalGeneration"
        " aria_text=AriaTextForCausalLM audioflamingo3=AudioFlamingo3ForConditionalGeneration axk1=AXK1ForCausalLM"
        " axk2=AXK2ForCausalLM aya_vision=AyaVisionForConditionalGeneration bailing_hybrid=BailingHybridForCausalLM"
        " bamba=BambaForCausalLM bart=BartForCausalLM bart=BartForConditionalGeneration beam=BeamForCausalLM"
        " bert=BertLMHeadModel bert-generation=BertGenerationDecoder big_bird=BigBirdForCausalLM"
        " bigbird_pegasus=BigBirdPegasusForCausalLM bigbird_pegasus=BigBirdPegasusForConditionalGeneration"
        " biogpt=BioGptForCausalLM bitnet=BitNetForCausalLM blenderbot=BlenderbotForCausalLM"
        " blenderbot=BlenderbotForConditionalGeneration blenderbot-small=BlenderbotSmallForCausalLM"
        " blenderbot-small=BlenderbotSmallForConditionalGeneration blip=BlipForConditionalGeneration"
        " blip-2=Blip2ForConditionalGeneration bloom=BloomForCausalLM blt=BltForCausalLM camembert=CamembertForCausalLM"
        " canary=CanaryForConditionalGeneration chameleon=ChameleonForConditionalGeneration code_llama=LlamaForCausalLM"
        " codegen=CodeGenForCausalLM cohere=CohereForCausalLM cohere2=Cohere2ForCausalLM cohere2_moe=Cohere2MoeForCausalLM"
        " cohere2_vision=Cohere2VisionForConditionalGeneration cohere_asr=CohereAsrForConditionalGeneration"
        " cohere_compass=CohereCompassForConditionalGeneration cohere_compass_text=CohereCompassForCausalLM"
        " cosmos3_edge=Cosmos3EdgeForConditionalGeneration cosmos3_omni=Cosmos3OmniForConditionalGeneration"
        " cpmant=CpmAntForCausalLM ctrl=CTRLLMHeadModel cwm=CwmForCausalLM data2vec-text=Data2VecTextForCausalLM"
        " dbrx=DbrxForCausalLM deepseek_ocr2=DeepseekOcr2ForConditionalGeneration deepseek_v2=DeepseekV2ForCausalLM"
        " deepseek_v3=DeepseekV3ForCausalLM deepseek_v32=DeepseekV32ForCausalLM deepseek_v4=DeepseekV4ForCausalLM"
        " deepseek_vl=DeepseekVLForConditionalGeneration deepseek_vl_hybrid=DeepseekVLHybridForConditionalGeneration"
        " dia=DiaForConditionalGeneration diffllama=DiffLlamaForCausalLM diffusion_gemma=DiffusionGemmaForBlockDiffusion"
        " doge=DogeForCausalLM dory=DoryForCausalLM dots1=Dots1ForCausalLM dots3_note=Dots3NoteForCausalLM"
        " dots3_note=Dots3NoteForConditionalGeneration dots3_note_text=Dots3NoteForCausalLM electra=ElectraForCausalLM"
        " emu3=Emu3ForCausalLM emu3=Emu3ForConditionalGeneration encoder-decoder=EncoderDecoderModel ernie=ErnieForCausalLM"
        " ernie4_5=Ernie4_5ForCausalLM ernie4_5_moe=Ernie4_5_MoeForCausalLM"
        " ernie4_5_vl_moe=Ernie4_5_VLMoeForConditionalGeneration evolla=EvollaForProteinText2Text exaone=LlamaForCausalLM"
        " exaone4=Exaone4ForCausalLM exaone4_5=Exaone4_5_ForConditionalGeneration exaone_moe=ExaoneMoeForCausalLM"
        " falcon=FalconForCausalLM falcon_h1=FalconH1ForCausalLM falcon_mamba=FalconMambaForCausalLM"
        " fast_vlm=FastVlmForConditionalGeneration flex_olmo=FlexOlmoForCausalLM flint=FlintForCausalLM"
        " florence2=Florence2ForConditionalGeneration fsmt=FSMTForConditionalGeneration"
        " fun_asr_nano=FunAsrNanoForConditionalGeneration fuyu=FuyuForCausalLM gemma=GemmaForCausalLM gemma2=Gemma2ForCausalLM"
        " gemma3=Gemma3ForConditionalGeneration gemma3_text=Gemma3ForCausalLM gemma3n=Gemma3nForConditionalGeneration"
        " gemma3n_text=Gemma3nForCausalLM gemma4=Gemma4ForConditionalGeneration gemma4_assistant=Gemma4AssistantForCausalLM"
        " gemma4_text=Gemma4ForCausalLM gemma4_unified=Gemma4UnifiedForConditionalGeneration"
        " gemma4_unified_assistant=Gemma4UnifiedAssistantForCausalLM gemma4_unified_text=Gemma4UnifiedForCausalLM"
        " git=GitForCausalLM glm=GlmForCausalLM glm4=Glm4ForCausalLM glm46v=Glm46VForConditionalGeneration"
        " glm4_moe=Glm4MoeForCausalLM glm4_moe_lite=Glm4MoeLiteForCausalLM glm4v=Glm4vForConditionalGeneration"
        " glm4v_moe=Glm4vMoeForConditionalGeneration glm5_next=Glm5NextForConditionalGeneration"
        " glm_moe_dsa=GlmMoeDsaForCausalLM glm_ocr=GlmOcrForConditionalGeneration glmasr=GlmAsrForConditionalGeneration"
        " glmga=Glm46VForConditionalGeneration got_ocr2=GotOcr2ForConditionalGeneration gpt-sw3=GPT2LMHeadModel"
        " gpt2=GPT2LMHeadModel gpt_bigcode=GPTBigCodeForCausalLM gpt_neo=GPTNeoForCausalLM gpt_neox=GPTNeoXForCausalLM"
        " gpt_neox_japanese=GPTNeoXJapaneseForCausalLM gpt_oss=GptOssForCausalLM gptj=GPTJForCausalLM"
        " gptsan-japanese=GPTSanJapaneseForConditionalGeneration granite=GraniteForCausalLM"
        " granite4_vision=Granite4VisionForConditionalGeneration granite_docling=GraniteDoclingForConditionalGeneration"
        " granite_speech=GraniteSpeechForConditionalGeneration granite_speech_plus=GraniteSpeechPlusForConditionalGeneration"
        " granite_swa=GraniteSWAForCausalLM granitemoe=GraniteMoeForCausalLM granitemoe_swa=GraniteMoeSWAForCausalLM"
        " granitemoehybrid=GraniteMoeHybridForCausalLM granitemoeshared=GraniteMoeSharedForCausalLM helium=HeliumForCausalLM"
        " hrm_text=HrmTextForCausalLM hunyuan_v1_dense=HunYuanDenseV1ForCausalLM hunyuan_v1_moe=HunYuanMoEV1ForCausalLM"
        " hunyuan_vl=HunYuanVLForConditionalGeneration hy_v3=HYV3ForCausalLM hy_v4=HYV4ForCausalLM"
        " hy_v4_vl=HYV4VLForConditionalGeneration hyperclovax=HyperCLOVAXForCausalLM"
        " hyperclovax_vision_v2=HyperCLOVAXVisionV2ForConditionalGeneration idefics=IdeficsForVisionText2Text"
        " idefics2=Idefics2ForConditionalGeneration idefics3=Idefics3ForConditionalGeneration"
        " inkling2=Inkling2ForConditionalGeneration inkling2_loop=Inkling2LoopForConditionalGeneration"
        " inkling2_loop_text=Inkling2LoopForCausalLM inkling2_text=Inkling2ForCausalLM"
        " inkling_mm_model=InklingForConditionalGeneration inkling_text=InklingForCausalLM"
        " instructblip=InstructBlipForConditionalGeneration instructblipvideo=InstructBlipVideoForConditionalGeneration"
        " internlm3=LlamaForCausalLM internvl=InternVLForConditionalGeneration iquestcoder=LlamaForCausalLM"
        " jais2=Jais2ForCausalLM jamba=JambaForCausalLM janus=JanusForConditionalGeneration jetmoe=JetMoeForCausalLM"
        " kimi_k25=Kimi_K25ForConditionalGeneration kimi_linear=KimiLinearForCausalLM kolibri1=Kolibri1ForCausalLM"
        " kosmos-2=Kosmos2ForConditionalGeneration kosmos-2.5=Kosmos2_5ForConditionalGeneration"
        " kyutai_speech_to_text=KyutaiSpeechToTextForConditionalGeneration laguna=LagunaForCausalLM"
        " lara_mini=LaraMiniForCausalLM led=LEDForConditionalGeneration lfm2=Lfm2ForCausalLM lfm2_moe=Lfm2MoeForCausalLM"
        " lfm2_vl=Lfm2VlForConditionalGeneration lfm3=Lfm3ForCausalLM lfm3_vl=Lfm3VlForConditionalGeneration"
        " lighton_ocr=LightOnOcrForConditionalGeneration llama=LlamaForCausalLM llama4=Llama4ForCausalLM"
        " llama4=Llama4ForConditionalGeneration llama4_text=Llama4ForCausalLM llava=LlavaForConditionalGeneration"
        " llava_next=LlavaNextForConditionalGeneration llava_next_video=LlavaNextVideoForConditionalGeneration"
        " llava_onevision=LlavaOnevisionForConditionalGeneration longcat_flash=LongcatFlashForCausalLM"
        " longt5=LongT5ForConditionalGeneration m2m_100=M2M100ForConditionalGeneration mamba=MambaForCausalLM"
        " mamba2=Mamba2ForCausalLM marian=MarianForCausalLM marian=MarianMTModel mbart=MBartForCausalLM"
        " mbart=MBartForConditionalGeneration mega=MegaForCausalLM megatron-bert=MegatronBertForCausalLM"
        " mellum=MellumForCausalLM mimo_v2_flash=MiMoV2FlashForCausalLM minicpm3=MiniCPM3ForCausalLM"
        " minicpm_ocr=MiniCPMOcrForConditionalGeneration minicpmv4_6=MiniCPMV4_6ForConditionalGeneration"
        " minicpmv4_7=MiniCPMV4_7ForConditionalGeneration minimax=MiniMaxForCausalLM minimax_m2=MiniMaxM2ForCausalLM"
        " minimax_m3_vl=MiniMaxM3SparseForConditionalGeneration minimax_m3_vl_text=MiniMaxM3VLForCausalLM"
        " ministral=MinistralForCausalLM ministral3=Ministral3ForCausalLM mistral=MistralForCausalLM"
        " mistral3=Mistral3ForConditionalGeneration mistral4=Mistral4ForCausalLM"
        " mistral_large4=MistralLarge4ForConditionalGeneration mixtral=MixtralForCausalLM mllama=MllamaForCausalLM"
        " mllama=MllamaForConditionalGeneration modernbert-decoder=ModernBertDecoderForCausalLM"
        " molmo2=Molmo2ForConditionalGeneration moonshine=MoonshineForConditionalGeneration"
        " moonshine_streaming=MoonshineStreamingForConditionalGeneration moshi=MoshiForCausalLM"
        " moss_transcribe_diarize=MossTranscribeDiarizeForConditionalGeneration mpt=MptForCausalLM"
        " mt5=MT5ForConditionalGeneration muse_glimmer=MuseGlimmerForConditionalGeneration"
        " muse_spark=MuseSparkForConditionalGeneration musicflamingo=MusicFlamingoForConditionalGeneration"
        " musicgen=MusicgenForCausalLM musicgen_melody=MusicgenMelodyForCausalLM mvp=MvpForCausalLM"
        " mvp=MvpForConditionalGeneration nanochat=NanoChatForCausalLM"
        " nemo_speechlm=Nemotron3_5TranscribeForConditionalGeneration nemotron=NemotronForCausalLM"
        " nemotron_h=NemotronHForCausalLM nemotron_h_omni=NemotronH_Omni_Reasoning_V3 nllb-moe=NllbMoeForConditionalGeneration"
        " olmo=OlmoForCausalLM olmo2=Olmo2ForCausalLM olmo3=Olmo3ForCausalLM olmo_hybrid=OlmoHybridForCausalLM"
        " olmoe=OlmoeForCausalLM omniasr=OmniASRForConditionalGeneration open-llama=OpenLlamaForCausalLM"
        " openai-gpt=OpenAIGPTLMHeadModel opt=OPTForCausalLM ovis2=Ovis2ForConditionalGeneration"
        " paddleocr_vl=PaddleOCRVLForConditionalGeneration paligemma=PaliGemmaForConditionalGeneration"
        " pegasus=PegasusForCausalLM pegasus=PegasusForConditionalGeneration pegasus_x=PegasusXForConditionalGeneration"
        " perception_lm=PerceptionLMForConditionalGeneration persimmon=PersimmonForCausalLM phi=PhiForCausalLM"
        " phi3=Phi3ForCausalLM phi4_multimodal=Phi4MultimodalForCausalLM phimoe=PhimoeForCausalLM"
        " pi0=PI0ForConditionalGeneration pix2struct=Pix2StructForConditionalGeneration pixtral=LlavaForConditionalGeneration"
        " plbart=PLBartForCausalLM plbart=PLBartForConditionalGeneration pop2piano=Pop2PianoForConditionalGeneration"
        " pp_chart2table=GotOcr2ForConditionalGeneration pp_formulanet=PPFormulaNetForConditionalGeneration"
        " prophetnet=ProphetNetForCausalLM prophetnet=ProphetNetForConditionalGeneration qdqbert=QDQBertLMHeadModel"
        " qianfan_ocr=QianfanOCRForConditionalGeneration qwen2=Qwen2ForCausalLM"
        " qwen2_5_omni=Qwen2_5OmniForConditionalGeneration qwen2_5_omni_thinker=Qwen2_5OmniThinkerForConditionalGeneration"
        " qwen2_5_vl=Qwen2_5_VLForConditionalGeneration qwen2_audio=Qwen2AudioForConditionalGeneration"
        " qwen2_moe=Qwen2MoeForCausalLM qwen2_vl=Qwen2VLForConditionalGeneration qwen3=Qwen3ForCausalLM"
        " qwen3_5=Qwen3_5ForCausalLM qwen3_5=Qwen3_5ForConditionalGeneration qwen3_5_moe=Qwen3_5MoeForCausalLM"
        " qwen3_5_moe=Qwen3_5MoeForConditionalGeneration qwen3_5_moe_text=Qwen3_5MoeForCausalLM qwen3_5_text=Qwen3_5ForCausalLM"
        " qwen3_asr=Qwen3ASRForConditionalGeneration qwen3_moe=Qwen3MoeForCausalLM qwen3_next=Qwen3NextForCausalLM"
        " qwen3_omni_moe=Qwen3OmniMoeForConditionalGeneration"
        " qwen3_omni_moe_thinker=Qwen3OmniMoeThinkerForConditionalGeneration qwen3_vl=Qwen3VLForConditionalGeneration"
        " qwen3_vl_moe=Qwen3VLMoeForConditionalGeneration qwen4_exp=Qwen4ExpForCausalLM"
        " qwen4_exp=Qwen4ExpForConditionalGeneration qwen4_exp_text=Qwen4ExpForCausalLM"
        " recurrent_gemma=RecurrentGemmaForCausalLM reformer=ReformerModelWithLMHead rembert=RemBertForCausalLM"
        " roberta=RobertaForCausalLM roberta-prelayernorm=RobertaPreLayerNormForCausalLM roc_bert=RoCBertForCausalLM"
        " roformer=RoFormerForCausalLM rwkv=RwkvForCausalLM sarvam_mla=DeepseekV3ForCausalLM sarvam_moe=Glm4MoeForCausalLM"
        " seamless_m4t=SeamlessM4TForSpeechToText seamless_m4t=SeamlessM4TForTextToText"
        " seamless_m4t_v2=SeamlessM4Tv2ForSpeechToText seamless_m4t_v2=SeamlessM4Tv2ForTextToText seed_oss=SeedOssForCausalLM"
        " shieldgemma2=Gemma3ForConditionalGeneration smollm3=SmolLM3ForCausalLM smolvlm=SmolVLMForConditionalGeneration"
        " solar_open=SolarOpenForCausalLM speech-encoder-decoder=SpeechEncoderDecoderModel"
        " speech_to_text=Speech2TextForConditionalGeneration speech_to_text_2=Speech2Text2ForCausalLM"
        " speecht5=SpeechT5ForSpeechToText stablelm=StableLmForCausalLM starcoder2=Starcoder2ForCausalLM"
        " step3p7=Step3p7ForConditionalGeneration switch_transformers=SwitchTransformersForConditionalGeneration"
        " t5=T5ForConditionalGeneration t5gemma=T5GemmaForConditionalGeneration t5gemma2=T5Gemma2ForConditionalGeneration"
        " transfo-xl=TransfoXLLMHeadModel trocr=TrOCRForCausalLM udop=UdopForConditionalGeneration"
        " umt5=UMT5ForConditionalGeneration unlimited_ocr=UnlimitedOcrForConditionalGeneration vaultgemma=VaultGemmaForCausalLM"
        " vibevoice=VibeVoiceForConditionalGeneration vibevoice_asr=VibeVoiceAsrForConditionalGeneration"
        " video_llama_3=VideoLlama3ForConditionalGeneration video_llava=VideoLlavaForConditionalGeneration"
        " vipllava=VipLlavaForConditionalGeneration vision-encoder-decoder=VisionEncoderDecoderModel"
        " voxtral=VoxtralForConditionalGeneration voxtral_realtime=VoxtralRealtimeForConditionalGeneration"
        " whisper=WhisperForCausalLM whisper=WhisperForConditionalGeneration xglm=XGLMForCausalLM xlm=XLMWithLMHeadModel"
        " xlm-prophetnet=XLMProphetNetForCausalLM xlm-prophetnet=XLMProphetNetForConditionalGeneration"
        " xlm-roberta=XLMRobertaForCausalLM xlm-roberta-xl=XLMRobertaXLForCausalLM xlnet=XLNetLMHeadModel"
        " xlstm=xLSTMForCausalLM xmod=XmodForCausalLM youtu=YoutuForCausalLM zamba=ZambaForCausalLM zamba2=Zamba2ForCausalLM"
        " zaya=ZayaForCausalLM "
    ),
}
